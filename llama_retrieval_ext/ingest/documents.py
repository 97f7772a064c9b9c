"""A document on its way in: who it is, as it was given, and ready to be stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from llama_index.core.schema import BaseNode, Document

from llama_retrieval_ext.errors import ConfigurationError, DuplicateNodeError, ScopeError
from llama_retrieval_ext.ingest.digest import digest_of
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY, source_in


class DocumentKey(NamedTuple):
    """What makes a document the same one: its id, and where it lives.

    Attributes:
        tenant: Its tenant; empty where it has none.
        kb: Its knowledge base within the tenant; empty where it has none.
        ref: Its id.
    """

    tenant: str
    kb: str
    ref: str


@dataclass(frozen=True, slots=True)
class Given:
    """A document as the caller gave it.

    Attributes:
        key: Which document it is.
        nodes: One LlamaIndex ``Document``, or the nodes that make it up.
        digest: Of everything that decides what is stored of it.
    """

    key: DocumentKey
    nodes: tuple[BaseNode, ...]
    digest: str

    @property
    def is_whole(self) -> bool:
        """Whether it is yet to be split."""
        return isinstance(self.nodes[0], Document)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document as it is to be stored: the nodes carry their final ids and embeddings."""

    key: DocumentKey
    digest: str
    nodes: tuple[BaseNode, ...]

    @property
    def source(self) -> str:
        """The file that it came from; empty where it is its own source."""
        return source_in(self.nodes[0].metadata)


def ref_of(node: BaseNode) -> str:
    """The id of the document that a node belongs to: its own, if it belongs to none."""
    return node.node_id if isinstance(node, Document) else node.ref_doc_id or node.node_id


def identified(nodes: list[BaseNode], *, scope: Mapping[str, str], fingerprint: str) -> list[Given]:
    """The documents that a group of nodes with one document id makes up: one for each place.

    Args:
        nodes: One ``Document``, or nodes of one document id.
        scope: The metadata that the caller's scope stands for; empty for none.
        fingerprint: Of the transformations that they go through; empty for none.

    Raises:
        ScopeError: A node says that it belongs elsewhere.
        DuplicateNodeError: Two nodes have the same id.
        ConfigurationError: An id cannot be stored, or something has no JSON form.
    """
    places: dict[DocumentKey, list[BaseNode]] = {}
    for node in nodes:
        places.setdefault(_key(node, scope), []).append(node)
    for key, members in places.items():
        _check_ids(key, members)
    return [
        Given(key, tuple(members), digest_of(members, fingerprint))
        for key, members in places.items()
    ]


def _key(node: BaseNode, scope: Mapping[str, str]) -> DocumentKey:
    ref = ref_of(node)
    for key, value in scope.items():
        claimed = node.metadata.get(key)
        if claimed is not None and claimed != value:
            raise ScopeError(
                f"{ref!r} has {key}={claimed!r} in its metadata and was added with "
                f"{key}={value!r}; add it with its own scope, or take the key out of the metadata"
            )
    return DocumentKey(_place(node, scope, TENANT_KEY), _place(node, scope, KB_KEY), ref)


def _place(node: BaseNode, scope: Mapping[str, str], key: str) -> str:
    # Scopes are made of strings: metadata of another type puts a node into none.
    claimed = scope.get(key) or node.metadata.get(key)
    return claimed if isinstance(claimed, str) else ""


def _check_ids(key: DocumentKey, nodes: list[BaseNode]) -> None:
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
