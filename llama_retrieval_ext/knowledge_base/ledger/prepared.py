"""Identity and stored form of a document: in memory, or in a file if it is long."""

import json
import pickle
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from os import SEEK_END
from typing import IO, Final, NamedTuple, TypeAlias

from llama_index.core.schema import BaseNode, Document, MetadataMode

from llama_retrieval_ext.errors import ScopeError
from llama_retrieval_ext.scope import (
    ALLOWED_KEY,
    KB_KEY,
    TENANT_KEY,
    allowed_in,
    source_in,
    without_allowed,
)
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_to_text

# In the key of a document as it was known until a moment, and in the ids of its nodes: between its
# own and the moment.
HISTORY: Final = "\x1f"


class DocumentKey(NamedTuple):
    """The identity of a document: its scope, whose parts may be empty, and its id."""

    tenant: str
    kb: str
    ref: str


class PackedNode(NamedTuple):
    """The stored form of a node."""

    text: str
    embedding: bytes  # doubles
    rows: str  # its extracted graph rows as JSON; empty for none


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document ready to be stored: its nodes have their final ids and embeddings.

    Pickling loses the same information as a store.
    """

    key: DocumentKey
    digest: str
    nodes: tuple[BaseNode, ...]
    rows: Mapping[str, str] = field(default_factory=dict)  # extracted graph rows by node id, JSON
    keeps_allowed: bool = False  # whether a stored version keeps the principals that it names
    replaces: str | None = None  # see `shared`

    @property
    def node_ids(self) -> list[str]:
        """The ids of its nodes."""
        return [node.node_id for node in self.nodes]

    @property
    def dimensions(self) -> dict[int, str]:
        """The dimensions of its embeddings in their order, each with the first node that has it."""
        dimensions: dict[int, str] = {}
        for node in self.nodes:
            dimensions.setdefault(len(node.get_embedding()), node.node_id)
        return dimensions

    @property
    def size_bytes(self) -> int:
        """About the size of its nodes in a store: JSON, terms and the vector."""
        size = 0
        for node in self.nodes:
            text = node.get_content(MetadataMode.ALL).encode("utf-8", "replace")
            size += 2 * len(text) + 4 * len(node.embedding or ()) + _FIELDS_BYTES
        return size

    def parts(self) -> Iterator["Prepared"]:
        """Yield itself; see `SpooledDocument`."""
        yield self

    @property
    def allowed(self) -> tuple[str, ...]:
        """The principals who may see it; empty for everyone in its scope."""
        return allowed_in(self.nodes[0].metadata)

    def shared(self, allowed: Sequence[str], *, replaces: str | None = None) -> "Prepared":
        """Return the document as visible to these principals; empty for everyone.

        With `replaces`, it is only written in place of this stored version.
        """
        nodes = tuple(with_allowed(node, allowed) for node in self.nodes)
        digest = version_of(content_of(self.digest), allowed)
        return replace(self, digest=digest, nodes=nodes, replaces=replaces)

    @property
    def source(self) -> str:
        """The file that it came from; empty if it is its own source."""
        return source_in(self.nodes[0].metadata)

    def packed(self) -> list[PackedNode]:
        """Return the stored form of its nodes: eight times as fast as LlamaIndex's pickling."""
        return [
            PackedNode(
                node_to_text(node),
                array("d", node.get_embedding()).tobytes(),
                self.rows.get(node.node_id, ""),
            )
            for node in self.nodes
        ]

    def __reduce__(self) -> tuple[object, ...]:
        return unpacked, (self.key, self.digest, self.packed(), self.keeps_allowed)


def unpacked(
    key: DocumentKey,
    digest: str,
    packed: Iterable[PackedNode],
    keeps_allowed: bool = False,  # noqa: FBT001, FBT002 - pickle passes it by position
) -> Prepared:
    """Return the document from the output of `Prepared.packed`."""
    nodes: list[BaseNode] = []
    rows: dict[str, str] = {}
    for node in packed:
        vector = array("d", node.embedding).tolist()
        nodes.append(node_from_text(node.text).model_copy(update={"embedding": vector}))
        if node.rows:
            rows[nodes[-1].node_id] = node.rows
    return Prepared(key, digest, tuple(nodes), rows, keeps_allowed)


class SpooledDocument:
    """A document ready to be stored, as `Prepared`, whose nodes are in a file in parts.

    Its creator owns the file, and appends parts until it is written.
    """

    replaces: str | None = None

    def __init__(
        self, key: DocumentKey, content: str, allowed: tuple[str, ...] | None, file: IO[bytes]
    ) -> None:
        self.key = key
        self.digest = version_of(content, allowed or ())
        self.allowed = allowed or ()
        self.keeps_allowed = allowed is None
        self.source = ""
        self.node_ids: list[str] = []
        self.dimensions: dict[int, str] = {}
        self.size_bytes = 0
        self._file = file
        self._starts: list[int] = []

    def append(self, part: Prepared) -> None:
        """Write the next nodes to the file."""
        if not part.nodes:
            return
        self.source = self.source or part.source
        self.node_ids += part.node_ids
        for dimension, node_id in part.dimensions.items():
            self.dimensions.setdefault(dimension, node_id)
        self.size_bytes += part.size_bytes
        self._starts.append(self._file.seek(0, SEEK_END))
        pickle.dump(part, self._file)

    def shared(self, allowed: Sequence[str], *, replaces: str | None = None) -> "SpooledDocument":
        """Return the document as visible to these principals; see `Prepared.shared`."""
        shared = copy(self)
        shared.replaces = replaces
        shared.allowed = tuple(allowed)
        shared.digest = version_of(content_of(self.digest), allowed)
        return shared

    def parts(self) -> Iterator[Prepared]:
        """Yield documents with this key and version, each with the next nodes."""
        for start in self._starts:
            self._file.seek(start)
            part: Prepared = pickle.load(self._file)  # noqa: S301 - its own
            yield part.shared(self.allowed)


# A document that can be written.
Writable: TypeAlias = Prepared | SpooledDocument


# The fields of a node in JSON without its text and metadata: ids, relations, settings.
_FIELDS_BYTES: Final = 1000


def version_of(content: str, allowed: Sequence[str]) -> str:
    """Return the digest of a stored version: of its content, and of who may see it."""
    if not allowed:
        return content
    names = json.dumps(sorted(allowed)).encode()
    return f"{content}:{blake2b(names, digest_size=16).hexdigest()}"


def content_of(version: str) -> str:
    """Return the digest of the content of a version."""
    return version.partition(":")[0]


def with_allowed(node: BaseNode, allowed: Sequence[str]) -> BaseNode:
    """Return a copy of a node that only these principals may see; empty for everyone.

    They are no part of the text that is embedded, searched by keyword, or shown to an LLM.
    """
    if not allowed and ALLOWED_KEY not in node.metadata:
        return node
    metadata = without_allowed(node.metadata)
    if not allowed:
        return node.model_copy(update={"metadata": metadata})
    hidden = {
        name: list(dict.fromkeys([*getattr(node, name), ALLOWED_KEY]))
        for name in ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys")
    }
    return node.model_copy(update={"metadata": {**metadata, ALLOWED_KEY: list(allowed)}, **hidden})


def ref_of(node: BaseNode) -> str:
    """Return the id of the document that a node belongs to; its own if it belongs to none."""
    return node.node_id if isinstance(node, Document) else node.ref_doc_id or node.node_id


def key_of_node(node: BaseNode, scope: Mapping[str, str] | None = None) -> DocumentKey:
    """Return the document that a node belongs to; `scope` is the metadata of the caller's scope."""
    _, mark, moment = node.node_id.partition(HISTORY)
    ref, scope = f"{ref_of(node)}{mark}{moment}", scope or {}
    for key, value in scope.items():
        claimed = node.metadata.get(key)
        if claimed is not None and claimed != value:
            raise ScopeError(
                f"{ref!r} has {key}={claimed!r} in its metadata and was added with "
                f"{key}={value!r}; add it with its own scope, or take the key out of the metadata"
            )
    # Scopes consist of strings: a node with metadata of another type is in no scope.
    tenant = scope.get(TENANT_KEY) or node.metadata.get(TENANT_KEY)
    kb = scope.get(KB_KEY) or node.metadata.get(KB_KEY)
    tenant, kb = isinstance(tenant, str) and tenant, isinstance(kb, str) and kb
    return DocumentKey(tenant or "", kb or "", ref)
