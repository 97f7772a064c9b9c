"""Documents on their way into a knowledge base: their ids, digests, scopes and times."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from hashlib import blake2b
from struct import pack
from typing import Final, Literal, TypeAlias, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from llama_index.core.schema import (
    BaseNode,
    Document,
    MediaResource,
    MetadataMode,
    Node,
    TransformComponent,
)
from pydantic_core import PydanticSerializationError

from llama_retrieval_ext.dates import (
    KNOWN_FROM,
    VALID_FROM,
    VALID_TO,
    VALIDITY_TEXT,
    Moment,
    instant,
    moment_of,
    now,
)
from llama_retrieval_ext.errors import ConfigurationError, DuplicateNodeError, ScopeError
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, ref_of, version_of
from llama_retrieval_ext.knowledge_base.passages import LONG
from llama_retrieval_ext.scope import ALLOWED_KEY, KB_KEY, TENANT_KEY, principals_of
from llama_retrieval_ext.text.validity import validity_in

# Who may see documents: principals, or a function of the document; None for its metadata.
Allowed: TypeAlias = Iterable[str] | Callable[[BaseNode], Iterable[str] | None] | None
# Each node stores them, and Milvus has 64 KB for one.
_MAX_ALLOWED: Final = 16_000
_MAX_KEYS: Final = 1000


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document as passed by the caller: one LlamaIndex ``Document``, or its nodes."""

    key: DocumentKey
    nodes: tuple[BaseNode, ...]
    digest: str  # of its content
    allowed: tuple[str, ...] | None = None  # None to keep what a stored version has

    @property
    def version(self) -> str:
        """The digest of its content, and of who may see it as far as it says so."""
        return version_of(self.digest, self.allowed or ())

    @property
    def is_whole(self) -> bool:
        """Whether it has not been split yet."""
        return isinstance(self.nodes[0], Document)

    @property
    def is_long(self) -> bool:
        """Whether it is split, embedded and written in groups of nodes."""
        return self.is_whole and len(self.nodes[0].get_content()) > LONG


def name_of(node: BaseNode) -> str:
    """Return the id of the document that a node belongs to, or its own id if it has none."""
    try:
        return ref_of(node)
    except ValueError:  # several sources; reported as a failure later
        return node.node_id


def check_ids(key: DocumentKey, nodes: Sequence[BaseNode]) -> None:
    """Raise if an id of a document cannot be stored or is not unique."""
    ids = [node.node_id for node in nodes]
    for id_ in (*key, *ids):
        if "\0" in id_ or id_.encode("utf-8", "ignore").decode() != id_:
            raise ConfigurationError(f"the id {id_!r} is not text that can be stored; give another")
    if not key.ref or "" in ids:
        raise ConfigurationError("the id '' is empty; give another, by which it can be deleted")
    if len(set(ids)) < len(ids):
        ((twice, _),) = Counter(ids).most_common(1)
        raise DuplicateNodeError(
            f"two nodes of document {key.ref!r} have the id {twice!r}; ids must be unique", twice
        )


def check_keys(metadata: object) -> None:
    """Raise `ConfigurationError` if metadata has too many keys, those of dicts in it included."""
    values, n_keys = [metadata], 0
    while values:
        value = values.pop()
        if isinstance(value, Mapping):
            n_keys += len(value)
            values += value.values()
        elif isinstance(value, list | tuple):
            values += value
        if n_keys > _MAX_KEYS:
            raise ConfigurationError(
                f"metadata has more than {_MAX_KEYS:,} keys, those of dicts in it included; keep "
                "what is filtered by or shown, and put the others into the text"
            )


def allowed_names(given: object) -> tuple[str, ...]:
    """Return the principals who may see a document, or raise `ConfigurationError`."""
    names = principals_of(given, ALLOWED_KEY)
    if not names:
        raise ConfigurationError(
            "allowed is empty, which could mean nobody or everyone; pass None for everyone, or "
            "name a principal"
        )
    if sum(map(len, names)) + 4 * len(names) > _MAX_ALLOWED:
        raise ConfigurationError(
            f"allowed names {len(names)} principals, more than fit with each node; name groups"
        )
    return names


def allowed_by(nodes: Sequence[BaseNode], allowed: Allowed) -> tuple[str, ...] | None:
    """Return the principals who may see the document of these nodes; None if nothing says so."""
    named: set[tuple[str, ...] | None] = set()
    for node in nodes:
        stated = node.metadata.get(ALLOWED_KEY)
        given = allowed(node) if callable(allowed) else stated if allowed is None else allowed
        names = None if given is None else allowed_names(given)
        if names is not None and stated is not None and allowed_names(stated) != names:
            raise ConfigurationError(
                f"document {name_of(node)!r} has {ALLOWED_KEY}={stated!r} in its metadata and was "
                f"added with {list(names)}; pass one of them"
            )
        named.add(names)
    if len(named) > 1:
        raise ConfigurationError(
            f"the nodes of document {name_of(nodes[0])!r} name different principals; all nodes of "
            "a document are visible to the same ones"
        )
    return named.pop()


# Object addresses differ between runs.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def digest_of(nodes: Iterable[BaseNode], fingerprint: str = "") -> str:
    """Return a digest of everything that affects the stored form of a document.

    It has 32 hexadecimal digits, the same in every process.
    """
    digest = blake2b(fingerprint.encode(), digest_size=16)
    for given in nodes:
        node = given.model_copy(update={"metadata": _in_order(given.metadata)})
        text = node.get_content(MetadataMode.NONE)
        if isinstance(node, Document) and len(text) > LONG:  # JSON and its hash would copy it
            for start in range(0, len(text), LONG):
                digest.update(text[start : start + LONG].encode("utf-8", "surrogatepass"))
            media = (node.text_resource or MediaResource()).model_copy(update={"text": ""})
            node = node.model_copy(update={"text_resource": media})
        digest.update(_content(node))
        if isinstance(node, Node):
            digest.update(node.hash.encode())  # media, which the JSON omits
        if node.embedding is not None:
            digest.update(pack(f"{len(node.embedding)}d", *node.embedding))
    return digest.hexdigest()


def check_transformations(
    given: Iterable[TransformComponent], what: str, example: str
) -> list[TransformComponent]:
    """Return transformations as a list, or raise if one is none of LlamaIndex's."""
    checked = list(given)
    for transformation in checked:
        if not isinstance(transformation, TransformComponent):
            raise ConfigurationError(
                f"expected LlamaIndex {what}, got {type(transformation).__name__}; write "
                f"{example}, for instance"
            )
    return checked


def fingerprint_of(transformations: Sequence[TransformComponent]) -> str:
    """Return the classes and settings of transformations, as far as exposed."""
    settings = [
        (type(transformation).__qualname__, transformation.to_dict())
        for transformation in transformations
    ]
    return _ADDRESS.sub("", repr(settings))


def _in_order(value: object) -> object:
    """Return the value with lists for sets, whose order differs between processes."""
    if isinstance(value, Mapping):
        return {key: _in_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_order(item) for item in value]
    return sorted(value, key=repr) if isinstance(value, AbstractSet) else value


def _content(node: BaseNode) -> bytes:
    try:
        return node.model_dump_json(exclude={"embedding"}).encode()
    except PydanticSerializationError:
        pass  # lone surrogates, perhaps, which the standard library escapes
    try:
        return json.dumps(node.model_dump(mode="json", exclude={"embedding"})).encode()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{node.node_id!r} has something in its metadata that cannot be stored ({error}); "
            "use strings, numbers, booleans, and lists or dicts of them"
        ) from error


def stamped(node: BaseNode, key: DocumentKey, *, keeps_history: bool = False) -> BaseNode:
    """Return the node, or a copy, with the tenant and knowledge base of its document.

    It also has the time since when it is known, if history is kept or it has a validity. None of
    them is part of the text that is embedded, searched by keyword, or shown to an LLM.
    """
    metadata = node.metadata
    more: dict[str, object] = {}
    for name, value in ((TENANT_KEY, key.tenant), (KB_KEY, key.kb)):
        claimed = metadata.get(name)
        if isinstance(claimed, str) and claimed != value:
            raise ScopeError(
                f"a transformation gave a node of document {key.ref!r} {name}={claimed!r}, and "
                f"the document has {value or 'none'!r}; pass scope= instead"
            )
        if value:
            more[name] = value
    if metadata.get(ALLOWED_KEY) is not None:
        raise ConfigurationError(
            f"a transformation gave a node of document {key.ref!r} {ALLOWED_KEY!r} in its metadata;"
            " pass allowed= instead"
        )
    is_timed = keeps_history or VALID_FROM in metadata or VALID_TO in metadata
    if is_timed and KNOWN_FROM not in metadata:
        more[KNOWN_FROM] = now()
    if not more:
        return node
    hidden = {
        name: list(dict.fromkeys([*getattr(node, name), *more]))
        for name in ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys")
    }
    return node.model_copy(update={"metadata": {**metadata, **more}, **hidden})


A = TypeVar("A")
B = TypeVar("B")


def each_or_error(
    items: Sequence[A],
    work: Callable[[Sequence[A]], Sequence[B]],
    *,
    fatal: tuple[type[Exception], ...] = (),
) -> list[B | Exception]:
    """Return the result of each item, or its error; fatal errors, which concern no item, propagate.

    Process all items in one call; if that fails, each one separately.
    """
    if not items:
        return []
    try:
        return list(work(items))
    except fatal:
        raise
    except Exception as error:  # noqa: BLE001 - it is handed on as the item's result
        if len(items) == 1:
            return [error]
    return [result for item in items for result in each_or_error([item], work, fatal=fatal)]


def batched(items: Iterable[A], weight: Callable[[A], int], limit: int) -> Iterator[list[A]]:
    """Yield items in lists; each ends with the item that brings its weight to `limit` or more."""
    batch: list[A] = []
    total = 0
    for item in items:
        batch.append(item)
        total += weight(item)
        if total >= limit:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


# The metadata keys of the start and the end, of which one may be None; or a function of a document
# that returns both, either of which may be None.
Valid: TypeAlias = (
    Sequence[str | None] | Callable[[BaseNode], tuple[Moment | None, Moment | None] | None]
)
_KEYS: Final = (VALID_FROM, VALID_TO)


@dataclass(frozen=True, slots=True)
class Dating:
    """Gives documents the time for which they hold, in their metadata.

    Attributes:
        valid: The keys or the function; None for the metadata as it is.
        validity: Whether a document that does not say so otherwise is read for it.
        time_zone: The zone of dates without one, such as ``Asia/Shanghai``.
    """

    valid: Valid | None = None
    validity: Literal["text"] | None = None
    time_zone: str | None = None

    def __post_init__(self) -> None:
        is_pair = isinstance(self.valid, list | tuple) and len(self.valid) == len(_KEYS)
        if not (self.valid is None or callable(self.valid) or is_pair):
            raise ConfigurationError(
                "valid must be two metadata keys, such as ('effective', 'expires') or "
                "('effective', None), or a function of a document that returns two dates, got "
                f"{self.valid!r}"
            )
        if self.validity not in (None, "text"):
            raise ConfigurationError(f"validity must be 'text' or None, got {self.validity!r}")
        if self.time_zone is not None:
            _ = self._zone

    def dated(self, node: BaseNode) -> BaseNode:
        """Return the node, or a copy that says from when until when it holds.

        Raises:
            ConfigurationError: A date cannot be read, or the end is not after the start.
        """
        ends: tuple[object, object]
        if callable(self.valid):
            ends = self.valid(node) or (None, None)
        else:
            first, last = self.valid or _KEYS
            ends = node.metadata.get(first or ""), node.metadata.get(last or "")
        more: dict[str, object] = {}
        for key, value in zip(_KEYS, ends, strict=True):
            if value not in (None, ""):
                more[key] = self._moment(value, key)
        if self.validity is not None and not more:
            read = validity_in(node.get_content(MetadataMode.NONE))
            if read is not None:
                days = {VALID_FROM: read.start, VALID_TO: read.end}
                more = {k: self._moment(day, k) for k, day in days.items() if day is not None}
                more[VALIDITY_TEXT] = read.words
        if not more:
            return node
        start, end = (instant(more.get(key)) for key in _KEYS)
        if start is not None and end is not None and start >= end:
            raise ConfigurationError(f"{VALID_TO} must be after {VALID_FROM}, got {more}")
        hidden = list(dict.fromkeys([*node.excluded_embed_metadata_keys, *more]))
        return node.model_copy(
            update={"metadata": {**node.metadata, **more}, "excluded_embed_metadata_keys": hidden}
        )

    @property
    def _zone(self) -> tzinfo:
        try:
            return UTC if self.time_zone is None else ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ConfigurationError(
                f"time_zone must be a name such as 'Asia/Shanghai', got {self.time_zone!r}"
            ) from error

    def _moment(self, value: object, name: str) -> str:
        """Return a date or an instant with the zone, if it has none."""
        text = moment_of(value, name)
        moment = datetime.fromisoformat(text)
        if self.time_zone is None or moment.tzinfo is not None:
            return text
        return moment.replace(tzinfo=self._zone).isoformat()


# For calls that do not say anything of dates.
AS_IT_IS: Final = Dating()
