"""`Contents`: what a knowledge base has, as its store and its ledger say together."""

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, MetadataFilters

from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.ingest.batching import stored_nodes
from llama_retrieval_ext.ingest.ledger import Entry, Ledger
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.metadata_filters import as_metadata_filters


class Contents:
    """Looks up documents and their nodes.

    Args:
        store: Has the nodes.
        ledger: Knows whose they are.
    """

    def __init__(self, store: BasePydanticVectorStore, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger

    def nodes(self, ref: str, scope: Scope | None) -> list[BaseNode]:
        """The nodes of a document that a scope can see; without a scope, of the one in none.

        In the order of the text, where they say where they stand in it, and by node id.
        """
        keys = self._ledger.keys(ref, scope)
        ids = [node_id for key in keys for node_id in self._ledger.node_ids(key)]
        return sorted(stored_nodes(self._store, ids), key=_start_of)

    def matching(self, filters: MetadataFilters, scope: Scope | None) -> list[Entry]:
        """The documents that a scope can see and that have a node which satisfies filters.

        Raises:
            InvalidFilterError: The filters cannot mean anything.
            UnsupportedFilterError: The engine cannot evaluate them.
        """
        parse_filters(filters)
        wanted = filters if scope is None else _within(filters, scope)
        found = self._store.get_nodes(filters=wanted)
        visible = self._ledger.visible(scope)
        owners = self._ledger.owners(node.node_id for node in found)
        return [each for each in visible if each.key in owners]


def _within(filters: MetadataFilters, scope: Scope) -> MetadataFilters:
    return MetadataFilters(filters=[filters, as_metadata_filters(scope.condition)])


def _start_of(node: BaseNode) -> int:
    return getattr(node, "start_char_idx", None) or 0
