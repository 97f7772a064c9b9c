"""Documents on their way into a knowledge base: stable ids, digests, scopes."""

import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from struct import pack
from threading import Lock
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

from llama_index.core.schema import (
    BaseNode,
    Document,
    MediaResource,
    MetadataMode,
    Node,
    TransformComponent,
)
from pydantic_core import PydanticSerializationError

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DuplicateNodeError,
    ScopeError,
    UnstableIdWarning,
)
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, ref_of, version_of
from llama_retrieval_ext.knowledge_base.long_texts import LONG
from llama_retrieval_ext.scope import (
    ALLOWED_KEY,
    KB_KEY,
    SOURCE_KEY,
    TENANT_KEY,
    page_in,
    principals_of,
    source_in,
)

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
        twice = next(id_ for id_ in ids if ids.count(id_) > 1)
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
    found = {_allowed_by_node(node, allowed) for node in nodes}
    if len(found) > 1:
        raise ConfigurationError(
            f"the nodes of document {name_of(nodes[0])!r} name different principals; all nodes of "
            "a document are visible to the same ones"
        )
    return found.pop()


def _allowed_by_node(node: BaseNode, allowed: Allowed) -> tuple[str, ...] | None:
    own = node.metadata.get(ALLOWED_KEY)
    given = allowed(node) if callable(allowed) else own if allowed is None else allowed
    names = None if given is None else allowed_names(given)
    if names is not None and own is not None and allowed_names(own) != names:
        raise ConfigurationError(
            f"document {name_of(node)!r} has {ALLOWED_KEY}={own!r} in its metadata and was added "
            f"with {list(names)}; pass one of them"
        )
    return names


_UUID4: Final = 4
# Metadata in which LlamaIndex's readers name the file of a document, and its version.
_FILE_NAME: Final = "file_name"
_VERSION_KEYS: Final = ("file_size", "last_modified_date")

_Group: TypeAlias = tuple[str, str, str]


@dataclass
class _Parts:
    """The documents of one version of a file or of a page."""

    version: object
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)


class ReaderIds:
    """Replaces random ids by ids made from the file and the page or position.

    The ids are the same in every process. The documents of a file may be added in several calls:
    while the file is unchanged, a document with another text is another part of the file.
    """

    def __init__(self) -> None:
        self._parts: dict[_Group, _Parts] = {}
        self._lock = Lock()
        self._has_warned = False

    def stable(
        self, node: BaseNode, scope: Mapping[str, str], occurrences: Counter[object]
    ) -> BaseNode:
        """Return a node unchanged, or a document with a stable id; count the texts of the call."""
        if not _is_made_up(node):
            return node
        file = source_in(node.metadata)
        if not file or not isinstance(node, Document):
            self._warn(node)
            return node
        label = page_in(node.metadata)
        place = [scope.get(key) or node.metadata.get(key) for key in (TENANT_KEY, KB_KEY)]
        group = (repr(place), file, repr(label))
        text = hash(node.text)
        times = occurrences[*group, text]
        occurrences[*group, text] += 1
        number = self._number(group, _version_of(node, file), (text, times))
        page = f"_page_{label}" if label is not None else ""
        part = f"_part_{number}" if number or not page else ""
        return node.model_copy(update={"id_": f"{file}{page}{part}"})

    def _number(self, group: _Group, version: object, text: tuple[int, int]) -> int:
        with self._lock:
            parts = self._parts.get(group)
            if parts is None or parts.version != version:
                parts = self._parts[group] = _Parts(version)
            return parts.numbers.setdefault(text, len(parts.numbers))

    def _warn(self, node: BaseNode) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        name = node.metadata.get(SOURCE_KEY) or node.metadata.get(_FILE_NAME)
        whose = "" if name is None else f" of {name!r}"
        warnings.warn(
            f"the id {ref_of(node)!r} of a document{whose} is random, and its metadata do not say "
            "which part of which file it is: added again, it is another document. Read files with "
            "read_documents, or give documents an id, as in Document(text=..., id_=url)",
            UnstableIdWarning,
            stacklevel=2,
        )


def _is_made_up(node: BaseNode) -> bool:
    """Return whether a document has a random LlamaIndex id."""
    try:
        ref = ref_of(node)
        return UUID(ref).version == _UUID4 and str(UUID(ref)) == ref
    except ValueError:
        return False


def _version_of(document: BaseNode, file: str) -> object:
    try:
        status = Path(file).stat()
    except (OSError, ValueError):  # not on this machine: use the recorded metadata
        return tuple(document.metadata.get(key) for key in _VERSION_KEYS)
    return status.st_mtime_ns, status.st_size


# Object addresses differ between runs.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def digest_of(nodes: Iterable[BaseNode], fingerprint: str = "") -> str:
    """Return a digest of everything that affects the stored form of a document.

    It has 32 hexadecimal digits, the same in every process.
    """
    digest = blake2b(fingerprint.encode(), digest_size=16)
    for each in nodes:
        node = each.model_copy(update={"metadata": _in_order(each.metadata)})
        text = node.get_content(MetadataMode.NONE)
        if isinstance(node, Document) and len(text) > LONG:  # JSON and its hash would copy it
            for start in range(0, len(text), LONG):
                digest.update(text[start : start + LONG].encode("utf-8", "surrogatepass"))
            rest = (node.text_resource or MediaResource()).model_copy(update={"text": ""})
            node = node.model_copy(update={"text_resource": rest})
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
    for each in checked:
        if not isinstance(each, TransformComponent):
            raise ConfigurationError(
                f"expected LlamaIndex {what}, got {type(each).__name__}; write {example}, for "
                "instance"
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
        return {key: _in_order(each) for key, each in value.items()}
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


def stamped(node: BaseNode, key: DocumentKey) -> BaseNode:
    """Return the node, or a copy, with the tenant and knowledge base of its document.

    Neither is part of the text that is embedded, searched by keyword, or shown to an LLM.
    """
    scope = {TENANT_KEY: key.tenant, KB_KEY: key.kb}
    for name, value in scope.items():
        claimed = node.metadata.get(name)
        if isinstance(claimed, str) and claimed != value:
            raise ScopeError(
                f"a transformation gave a node of document {key.ref!r} {name}={claimed!r}, and "
                f"the document has {value or 'none'!r}; pass scope= instead"
            )
    if node.metadata.get(ALLOWED_KEY) is not None:
        raise ConfigurationError(
            f"a transformation gave a node of document {key.ref!r} {ALLOWED_KEY!r} in its metadata;"
            " pass allowed= instead"
        )
    metadata = {name: value for name, value in scope.items() if value}
    if not metadata:
        return node
    return node.model_copy(
        update={
            "metadata": {**node.metadata, **metadata},
            "excluded_embed_metadata_keys": _with(node.excluded_embed_metadata_keys, metadata),
            "excluded_llm_metadata_keys": _with(node.excluded_llm_metadata_keys, metadata),
        }
    )


def _with(keys: list[str], more: dict[str, str]) -> list[str]:
    return list(dict.fromkeys([*keys, *more]))


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
