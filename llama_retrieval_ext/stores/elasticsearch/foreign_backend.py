"""The backend of LlamaIndex's ``ElasticsearchStore``, as users have it already."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from elasticsearch.helpers.vectorstore import AsyncDenseVectorStrategy
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.vector_stores.elasticsearch import ElasticsearchStore

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.stores.backend import Capabilities, Found, ScoreRange, Search
from llama_retrieval_ext.stores.elasticsearch.connection import Connection
from llama_retrieval_ext.stores.elasticsearch.foreign_search import ForeignSearcher
from llama_retrieval_ext.stores.elasticsearch.request import Steps
from llama_retrieval_ext.stores.elasticsearch.similarity import SIMILARITIES
from llama_retrieval_ext.stores.elasticsearch.transport import Transport
from llama_retrieval_ext.stores.one_by_one import OneByOne

T = TypeVar("T")

_RANGES: Final[Mapping[str, ScoreRange]] = {
    "COSINE": SIMILARITIES["cosine"].range,
    "DOT_PRODUCT": SIMILARITIES["cosine"].range,  # of vectors of length 1
    "EUCLIDEAN_DISTANCE": SIMILARITIES["euclid"].range,
}


class ForeignElasticsearchBackend(OneByOne):
    """Asks the index of a LlamaIndex ``ElasticsearchStore``, with clients of its own.

    The store itself is not asked: it runs on one event loop only, stretches the scores of each
    answer to 0 to 1, and drops or turns round most filters. Raw scores come back here, and filters
    hold exactly: what the engine cannot decide on such an index (NOT, NE, NIN, text within
    strings, strings beside lists) is decided here, among the best 10,000. Where that does not
    suffice, the query is refused. Keyword search is what the analyser of the text field makes of
    it, which cuts Chinese into single characters.

    Args:
        store: The store; its client is used to learn where the server is, and left alone.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.
    """

    engine = "elasticsearch"

    def __init__(self, store: ElasticsearchStore, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations
        self._transport = Transport(Connection.of_client(store.client))
        self._searcher = ForeignSearcher(store.index_name, store.text_field, store.vector_field)
        weakref.finalize(self, self._transport.close)

    @property
    def capabilities(self) -> Capabilities:
        """Vector search where the store was made for it, and keyword search."""
        has_vectors = isinstance(self.store.retrieval_strategy, AsyncDenseVectorStrategy)
        return Capabilities(
            dense=_RANGES[self.store.distance_strategy or "COSINE"] if has_vectors else None,
            keyword=ScoreRange("bm25", 0.0, None),
            real_async=True,
        )

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Found]]:
        """Nearest nodes to an embedding, by the index's similarity.

        Raises:
            UnsupportedModeError: The store was not made for vector search.
            UnsupportedFilterError: More than 10,000 nodes would have to be looked at here.
        """
        if self.capabilities.dense is None:
            raise UnsupportedModeError(
                "this ElasticsearchStore was made for keyword search alone; make it with "
                "AsyncDenseVectorStrategy, or open a store by URL"
            )
        return self._call(lambda: self._searcher.dense(embedding, search))

    def keyword(self, text: str, search: Search) -> Call[list[Found]]:
        """Nodes that share words with a text, by BM25 with the rarity of words in the index.

        Raises:
            UnsupportedFilterError: More than 10,000 nodes would have to be looked at here.
        """
        return self._call(lambda: self._searcher.keyword(text, search))

    def describe(self) -> Mapping[str, object]:
        """The engine, where it is, and the fields that are asked."""
        return {
            "engine": self.engine,
            "store": "ElasticsearchStore",
            "url": self._transport.connection.where,
            "index": self.store.index_name,
            "text_field": self.store.text_field,
            "vector_field": self.store.vector_field,
        }

    def _call(self, steps: Callable[[], Steps[T]]) -> Call[T]:
        transport = self._transport
        return Call(lambda: transport.run(steps()), lambda: transport.arun(steps()))


def foreign_backend_of(store: BasePydanticVectorStore) -> ForeignElasticsearchBackend | None:
    """The backend of a LlamaIndex ``ElasticsearchStore``; None for any other store."""
    return ForeignElasticsearchBackend(store) if isinstance(store, ElasticsearchStore) else None
