"""The backend of LlamaIndex's `QdrantVectorStore`, as users have it already."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from llama_index.core.vector_stores.types import FilterOperator
from llama_index.vector_stores.qdrant import QdrantVectorStore

from llama_retrieval_ext.errors import StoreUnavailableError, UnsupportedModeError
from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.stores.backend import Asked, Capabilities, Found, ScoreRange, Search
from llama_retrieval_ext.stores.qdrant.foreign import ForeignStore
from llama_retrieval_ext.stores.qdrant.foreign_search import ForeignSearcher, flat_wanted
from llama_retrieval_ext.stores.qdrant.layout import range_of


class ForeignBackend:
    """Asks the collection of a LlamaIndex `QdrantVectorStore`, by the store's own client.

    The store's ``query`` is not used: it serves vector search where it was asked for something
    else, and its filters lose rows or let others in. Filters are exact here, or refused:
    TEXT_MATCH_INSENSITIVE, numbers of 2**53 and more, ALL of no values, and the keys that
    LlamaIndex keeps for itself. Fetching more and filtering here would do for those, too, but would
    in the end read the whole collection.

    Keyword search is what the store's ``sparse_query_fn`` makes of it, with its scores; it is
    there where the store was made with ``enable_hybrid``.

    Args:
        store: The store; whoever made it closes its clients.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.
    """

    engine = "qdrant"

    def __init__(self, store: QdrantVectorStore, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations
        self._foreign = ForeignStore(store)
        self._searcher = ForeignSearcher(self._foreign)
        with suppress(StoreUnavailableError):  # the first search asks again, and says so
            self._foreign.connection.ask(self._foreign.layout())

    @property
    def capabilities(self) -> Capabilities:
        """What the collection has, or will have by the settings of the store."""
        return Capabilities(
            dense=range_of(self._foreign.expected_distance),
            keyword=ScoreRange(low=0.0) if self._foreign.has_keywords else None,
            one_round_trip=self._foreign.has_keywords,
            real_async=self._foreign.connection.real_async,
            operators=self._foreign.version.operators - {FilterOperator.TEXT_MATCH_INSENSITIVE},
        )

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Found]]:
        """Nearest nodes to an embedding, by the collection's distance.

        Raises:
            UnsupportedFilterError: The condition cannot be exact on LlamaIndex's payload.
        """
        wanted = flat_wanted(search)
        return self._foreign.connection.call(lambda: self._searcher.dense(embedding, wanted))

    def keyword(self, text: str, search: Search) -> Call[list[Found]]:
        """Nodes whose sparse vectors agree with that of a text, best first.

        Raises:
            UnsupportedModeError: The store has no sparse vectors.
            UnsupportedFilterError: The condition cannot be exact on LlamaIndex's payload.
        """
        self._check_keywords()
        wanted = flat_wanted(search)
        return self._foreign.connection.call(lambda: self._searcher.keyword(text, wanted))

    def batch(self, asked: Sequence[Asked]) -> Call[list[list[Found]]] | None:
        """Any number of searches in one request; None where there are no sparse vectors.

        Raises:
            UnsupportedFilterError: A condition cannot be exact on LlamaIndex's payload.
        """
        if not self._foreign.has_keywords:
            return None
        wanted = [(each, flat_wanted(each.search)) for each in asked]
        return self._foreign.connection.call(lambda: self._searcher.batch(wanted))

    def describe(self) -> Mapping[str, object]:
        """The engine and the collection; never where, as the store's URL may hold a key."""
        return {
            "engine": self.engine,
            "store": "LlamaIndex's QdrantVectorStore",
            "collection": self._foreign.collection,
            "distance": self._foreign.expected_distance.value.lower(),
        }

    def _check_keywords(self) -> None:
        if not self._foreign.has_keywords:
            raise UnsupportedModeError(
                f"{self._foreign.where} has no sparse vectors to search for keywords; make it with "
                "enable_hybrid=True and a new collection, or open a store by URL"
            )
