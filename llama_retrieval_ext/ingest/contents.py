"""Reads the documents and nodes of a knowledge base from its store and ledger."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, MetadataFilters

from llama_retrieval_ext.filters import as_metadata_filters, parse_filters
from llama_retrieval_ext.ingest.ledger.ledger import Entry, Ledger
from llama_retrieval_ext.ingest.readers.documents import DocumentKey, batched, key_of_node
from llama_retrieval_ext.query import Scope, source_in

_TYPES = {
    str: "str",
    bool: "bool",
    int: "int",
    float: "float",
    list: "list",
    dict: "dict",
    type(None): "null",
}


class Contents:
    """Finds documents and their nodes.

    Args:
        store: Holds the nodes.
        ledger: Holds their documents.
    """

    def __init__(self, store: BasePydanticVectorStore, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger

    def named(self, name: str, scope: Scope | None) -> list[Entry]:
        """Return the documents with this id or source; a path may be relative."""
        found = self._ledger.named(name, scope)
        return found or self._ledger.named(str(Path(name).expanduser().resolve()), scope)

    def nodes(self, name: str, scope: Scope | None) -> list[BaseNode]:
        """Return the nodes of a document or source in a scope; None means in no scope.

        Ordered by document as added, then by position in the text, then by node id.
        """
        entries = self.named(name, scope)
        ids = self._ledger.node_ids(entry.key for entry in entries)
        owners = {
            node_id: number
            for number, entry in enumerate(entries)
            for node_id in ids.get(entry.key, ())
        }
        found = stored_nodes(self._store, list(owners))
        return sorted(found, key=lambda node: (owners[node.node_id], _start_of(node)))

    def node_ids(self, scope: Scope | None) -> list[str]:
        """Return the ids of the nodes visible to a scope; without a scope, of all."""
        ids = self._ledger.node_ids(entry.key for entry in self._ledger.visible(scope))
        return sorted(node_id for own in ids.values() for node_id in own)

    def texts(self, node_ids: Sequence[str]) -> dict[str, str]:
        """Return the texts of nodes by their ids, in this order; missing ones are omitted."""
        found = stored_nodes(self._store, node_ids)
        return {node.node_id: node.get_content(MetadataMode.NONE) for node in found}

    def first_nodes(self, scope: Scope | None, limit: int) -> list[BaseNode]:
        """Return the first nodes in a scope by node id."""
        return list(stored_nodes(self._store, self._ledger.sample(scope, limit)))

    def metadata_fields(self, scope: Scope | None, *, sample: int) -> dict[str, dict[str, int]]:
        """Count the nodes that have a value of each type under each metadata key."""
        found: dict[str, Counter[str]] = {}
        for node in stored_nodes(self._store, self._ledger.sample(scope, sample)):
            for key, value in node.metadata.items():
                found.setdefault(key, Counter())[_TYPES.get(type(value), "other")] += 1
        return {key: dict(found[key].most_common()) for key in sorted(found)}

    def matching(self, filters: MetadataFilters, scope: Scope | None) -> list[Entry]:
        """Return the documents in a scope that have a node which satisfies filters.

        Raises:
            InvalidFilterError: The filters are malformed.
            UnsupportedFilterError: The engine cannot evaluate them.
        """
        parse_filters(filters)
        scoped = filters if scope is None else _within(filters, scope)
        found = self._store.get_nodes(filters=scoped)
        visible = self._ledger.visible(scope)
        owners = set(map(key_of_node, found))
        return [each for each in visible if each.key in owners]


def sources_of(store: BasePydanticVectorStore, ledger: Ledger) -> dict[DocumentKey, str]:
    """Return the files of documents, from the metadata of their nodes."""
    ids = ledger.node_ids(each.key for each in ledger.visible(None))
    first = {own[0]: key for key, own in ids.items() if own}
    return {
        first[node.node_id]: source
        for node in stored_nodes(store, list(first))
        if (source := source_in(node.metadata))
    }


def _within(filters: MetadataFilters, scope: Scope) -> MetadataFilters:
    return MetadataFilters(filters=[filters, as_metadata_filters(scope.condition)])


def _start_of(node: BaseNode) -> int:
    return getattr(node, "start_char_idx", None) or 0


# Nodes per request, held in memory with their embeddings.
_MANY_NODES = 1000


def batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Yield lists of documents with about a thousand nodes each."""
    return batched(entries, lambda entry: entry.n_nodes, _MANY_NODES)


def stored_nodes(store: BasePydanticVectorStore, ids: Sequence[str]) -> Iterator[BaseNode]:
    """Yield the nodes with these ids, in this order; missing ones are omitted."""
    for start in range(0, len(ids), _MANY_NODES):
        yield from store.get_nodes(node_ids=list(ids[start : start + _MANY_NODES]))
