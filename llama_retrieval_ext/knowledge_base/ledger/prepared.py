"""Identity and stored form of a document."""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from llama_index.core.schema import BaseNode, Document

from llama_retrieval_ext.errors import ScopeError
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY, source_in
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_to_text


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
        return unpacked, (self.key, self.digest, self.packed())


def unpacked(key: DocumentKey, digest: str, packed: Iterable[PackedNode]) -> Prepared:
    """Return the document from the output of `Prepared.packed`."""
    nodes: list[BaseNode] = []
    rows: dict[str, str] = {}
    for each in packed:
        vector = array("d", each.embedding).tolist()
        nodes.append(node_from_text(each.text).model_copy(update={"embedding": vector}))
        if each.rows:
            rows[nodes[-1].node_id] = each.rows
    return Prepared(key, digest, tuple(nodes), rows)


def ref_of(node: BaseNode) -> str:
    """Return the id of the document that a node belongs to; its own if it belongs to none."""
    return node.node_id if isinstance(node, Document) else node.ref_doc_id or node.node_id


def key_of_node(node: BaseNode, scope: Mapping[str, str] | None = None) -> DocumentKey:
    """Return the document that a node belongs to; `scope` is the metadata of the caller's scope."""
    ref, scope = ref_of(node), scope or {}
    for key, value in scope.items():
        claimed = node.metadata.get(key)
        if claimed is not None and claimed != value:
            raise ScopeError(
                f"{ref!r} has {key}={claimed!r} in its metadata and was added with "
                f"{key}={value!r}; add it with its own scope, or take the key out of the metadata"
            )
    values = [scope.get(key) or node.metadata.get(key) for key in (TENANT_KEY, KB_KEY)]
    # Scopes consist of strings: a node with metadata of another type is in no scope.
    tenant, kb = (value if isinstance(value, str) else "" for value in values)
    return DocumentKey(tenant, kb, ref)
