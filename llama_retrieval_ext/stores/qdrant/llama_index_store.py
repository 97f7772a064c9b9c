"""Searches of a collection that LlamaIndex's `QdrantVectorStore` made."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import FilterOperator
from llama_index.vector_stores.qdrant import QdrantVectorStore
from llama_index.vector_stores.qdrant.utils import SparseEncoderCallable
from qdrant_client import models

from llama_retrieval_ext.errors import StoreUnavailableError, UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.stores.encoding.vectors import query_vector
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    EngineFeatures,
    EngineQuery,
    ScoreRange,
    Search,
    VectorQuery,
)
from llama_retrieval_ext.stores.qdrant.client import Connection, Request, Talk, Work
from llama_retrieval_ext.stores.qdrant.collection import Version, asked_version
from llama_retrieval_ext.stores.qdrant.distances import Layout, layout_of, range_of, score_of
from llama_retrieval_ext.stores.qdrant.errors import CollectionMissingError
from llama_retrieval_ext.stores.qdrant.filters import as_filter
from llama_retrieval_ext.stores.qdrant.llama_index_filters import flat_clause_of
from llama_retrieval_ext.stores.qdrant.search import Asker, Question
from llama_retrieval_ext.stores.qdrant_common.filters import Clause

_OLD_SPARSE: Final = "text-sparse"
_CONTENT: Final = "_node_content"
_ID_FIRST: Final = '{"id_": "'


class ForeignStore:
    """What has to be known of such a store to ask its client directly.

    Args:
        store: LlamaIndex's store. Some of it has no public name.
    """

    def __init__(self, store: QdrantVectorStore) -> None:
        client, aclient = store._client, store._aclient  # noqa: SLF001 - LlamaIndex keeps them so
        self.where = f"the collection {store.collection_name!r} of LlamaIndex's QdrantVectorStore"
        self.connection = Connection(client, aclient, where=self.where)
        self.version = Version(0, 0)
        self._store = store
        self._layout: Layout | None = None

    @property
    def collection(self) -> str:
        """The collection's name."""
        return self._store.collection_name

    @property
    def has_keywords(self) -> bool:
        """Whether there is, or will be, what a text can be compared with, and what encodes it."""
        encodes = self._store.enable_hybrid and self._encoder is not None
        return encodes and (self._layout is None or self._layout.sparse is not None)

    @property
    def expected_distance(self) -> models.Distance:
        """How embeddings are compared, or will be in the collection that the store would make."""
        if self._layout is not None:
            return self._layout.distance
        config = self._store._dense_config  # noqa: SLF001 - it has no public name
        return models.Distance.COSINE if config is None else config.distance

    def layout(self) -> Talk[Layout | None]:
        """The collection's vectors; None while it does not exist.

        Raises:
            StoreUnavailableError: The server cannot be reached.
            StoreFormatError: It has not the vectors that the store is set up for.
        """
        if self._layout is None:
            self.version = yield from asked_version()
            try:
                info = yield Request("get_collection", {"collection_name": self.collection})
            except CollectionMissingError:
                return None
            self._layout = layout_of(
                info,
                dense=self._store.dense_vector_name,
                sparse=(self._store.sparse_vector_name, _OLD_SPARSE),
                where=self.where,
            )
        return self._layout

    def forget(self) -> None:
        """The collection does not exist any more."""
        self._layout = None

    def encoded(self, text: str) -> Talk[models.SparseVector]:
        """The sparse vector of a query, by the store's own function; it may take its time."""
        encode = self._encoder
        indices, values = (yield Work(lambda: encode([text]))) if encode else ([[]], [[]])
        return models.SparseVector(indices=list(indices[0]), values=list(values[0]))

    def read(self, point: models.ScoredPoint, score: float) -> Candidate:
        """The node of a point, made when it is looked at."""
        return Candidate.later(self._node_id(point), score, lambda: self._node(point))

    @property
    def _encoder(self) -> SparseEncoderCallable | None:
        # Without enable_hybrid it is not even None.
        return getattr(self._store, "_sparse_query_fn", None)

    def _node_id(self, point: models.ScoredPoint) -> str:
        # The point's id is the node's, but in Qdrant's spelling of UUIDs.
        payload: Mapping[str, object] = point.payload or {}
        content = payload.get(_CONTENT)
        if isinstance(content, str) and content.startswith(_ID_FIRST):
            name = content[len(_ID_FIRST) : content.index('"', len(_ID_FIRST))]
            if "\\" not in name:
                return name
        return self._node(point).node_id

    def _node(self, point: models.ScoredPoint) -> BaseNode:
        nodes = self._store.parse_to_query_result([point]).nodes or []
        return nodes[0]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FlatWanted:
    """What a search is told besides what to look for, as clauses on LlamaIndex's payload.

    Attributes:
        top_k: How many to return, at least 1.
        clause: What each must match; None for everything.
        corpus: The nodes that the rarity of terms is measured on; None for all.
    """

    top_k: int
    clause: Clause | None
    corpus: Clause | None


def flat_wanted(search: Search) -> FlatWanted:
    """What a search of a backend asks for.

    Raises:
        UnsupportedFilterError: Its condition cannot be exact on this payload.
    """
    condition, scope = search.condition, search.scope
    return FlatWanted(
        search.top_k,
        None if condition is None else flat_clause_of(condition),
        None if scope is None else flat_clause_of(scope.condition),
    )


class ForeignSearcher:
    """Talks that search. Rankings come best first, equal scores by node id; no collection gives [].

    Args:
        store: LlamaIndex's store.
    """

    def __init__(self, store: ForeignStore) -> None:
        self._store = store
        connection = store.connection
        self._asker = Asker(
            store.collection,
            store.read,
            payload=True,
            grain=connection.grain,
            slack=connection.slack,
        )

    def dense(self, embedding: Sequence[float], wanted: FlatWanted) -> Talk[list[Candidate]]:
        """Nearest nodes to an embedding.

        Raises:
            ConfigurationError: A value of it is not finite.
            DimensionMismatchError: It has another dimension than the collection.
            UnsupportedFilterError: The server is too old for the filter.
        """

        def talk(layout: Layout) -> Talk[list[Candidate]]:
            question = self._nearest(embedding, wanted, layout)
            return (yield from self._asker.rankings([question]))[0]

        return self._if_there(talk, empty=[])

    def keyword(self, text: str, wanted: FlatWanted) -> Talk[list[Candidate]]:
        """Nodes whose sparse vectors agree with that of a text.

        Raises:
            UnsupportedModeError: The collection has no sparse vectors.
            UnsupportedFilterError: The server is too old for the filter.
        """

        def talk(layout: Layout) -> Talk[list[Candidate]]:
            question = yield from self._sharing(text, wanted, layout)
            return [] if question is None else (yield from self._asker.rankings([question]))[0]

        return self._if_there(talk, empty=[])

    def batch(self, asked: Sequence[tuple[EngineQuery, FlatWanted]]) -> Talk[list[list[Candidate]]]:
        """Any number of them in one request.

        Args:
            asked: Each with how many it wants, and which.

        Raises:
            ConfigurationError: A value of an embedding is not finite.
            DimensionMismatchError: An embedding has another dimension than the collection.
            UnsupportedModeError: The collection has no sparse vectors.
            UnsupportedFilterError: The server is too old for a filter.
        """

        def talk(layout: Layout) -> Talk[list[list[Candidate]]]:
            questions: list[Question | None] = []
            for each, wanted in asked:
                if isinstance(each, VectorQuery):
                    questions.append(self._nearest(each.embedding, wanted, layout))
                else:
                    questions.append((yield from self._sharing(each.text, wanted, layout)))
            some = [each for each in questions if each is not None]
            found = iter((yield from self._asker.rankings(some)) if some else [])
            return [[] if each is None else next(found) for each in questions]

        return self._if_there(talk, empty=[[] for _ in asked])

    def _if_there(self, talk: Callable[[Layout], Talk[T]], *, empty: T) -> Talk[T]:
        layout = yield from self._store.layout()
        if layout is None:
            return empty
        try:
            return (yield from talk(layout))
        except CollectionMissingError:
            self._store.forget()
            return empty

    def _nearest(self, embedding: Sequence[float], wanted: FlatWanted, layout: Layout) -> Question:
        is_cosine = layout.distance is models.Distance.COSINE
        vector = query_vector(
            embedding,
            dimension=layout.dimension,
            distance="cosine" if is_cosine else "dot",
            where=self._store.where,
        )
        score, filter_ = score_of(layout.distance), self._filter(wanted.clause)
        return Question(vector, layout.dense, wanted.top_k, filter_, None, score)

    def _sharing(self, text: str, wanted: FlatWanted, layout: Layout) -> Talk[Question | None]:
        if layout.sparse is None:
            raise UnsupportedModeError(
                f"{self._store.where} has no sparse vectors; make a new collection with "
                "enable_hybrid=True, or open one by URL"
            )
        vector = yield from self._store.encoded(text)
        if not vector.indices:
            return None
        params = None
        scoped = layout.weighs_rarity and self._store.version.measures_rarity_in_scope
        if wanted.corpus is not None and scoped:
            corpus = models.IdfCorpusParams(corpus=as_filter(wanted.corpus))
            params = models.SearchParams(idf=corpus)
        filter_ = self._filter(wanted.clause)
        return Question(vector, layout.sparse, wanted.top_k, filter_, params, float, positive=True)

    def _filter(self, clause: Clause | None) -> models.Filter | None:
        if clause is None:
            return None
        self._store.version.check(clause)
        return as_filter(clause)


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
    def features(self) -> EngineFeatures:
        """What the collection has, or will have by the settings of the store."""
        return EngineFeatures(
            dense=range_of(self._foreign.expected_distance),
            keyword=ScoreRange(low=0.0) if self._foreign.has_keywords else None,
            one_round_trip=self._foreign.has_keywords,
            real_async=self._foreign.connection.real_async,
            operators=self._foreign.version.operators - {FilterOperator.TEXT_MATCH_INSENSITIVE},
        )

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Nearest nodes to an embedding, by the collection's distance.

        Raises:
            UnsupportedFilterError: The condition cannot be exact on LlamaIndex's payload.
        """
        wanted = flat_wanted(search)
        return self._foreign.connection.call(lambda: self._searcher.dense(embedding, wanted))

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Nodes whose sparse vectors agree with that of a text, best first.

        Raises:
            UnsupportedModeError: The store has no sparse vectors.
            UnsupportedFilterError: The condition cannot be exact on LlamaIndex's payload.
        """
        self._check_keywords()
        wanted = flat_wanted(search)
        return self._foreign.connection.call(lambda: self._searcher.keyword(text, wanted))

    def batch(self, asked: Sequence[EngineQuery]) -> Call[list[list[Candidate]]] | None:
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
