"""What Milvus and Elasticsearch used before `EngineSearch`; goes when both have moved."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.query import check_top_k
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    Choose,
    EngineFeatures,
    EngineQuery,
    KeywordQuery,
    Search,
    VectorQuery,
    chosen_candidates,
    fuse_candidates,
    fuse_legs,
)
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
from llama_retrieval_ext.stores.engine.query_modes import (
    KEYWORD_MODES,
    MmrOptions,
    Options,
    Target,
    check_options,
    embedding_of,
    first_count,
    fusion_for,
    text_of,
)
from llama_retrieval_ext.stores.engine.vector_store import EngineStore

Sought: TypeAlias = Sequence[float] | str
fused_here = fuse_legs
fused = fuse_candidates


def _sought(query: EngineQuery) -> Sought:
    return query.embedding if isinstance(query, VectorQuery) else query.text


W_contra = TypeVar("W_contra", contravariant=True)

# A ranking, or the engine's steps to one: whoever carries them out knows.
Answer: TypeAlias = Any


class Searcher(Protocol[W_contra]):
    """Asks an engine. Rankings come best first, ties by node id; an empty store gives [].

    How many are wanted, and which nodes may come, each engine says in a type of its own.
    """

    def dense(self, embedding: Sequence[float], wanted: W_contra) -> Answer:
        """Nearest nodes to an embedding."""
        ...

    def keyword(self, text: str, wanted: W_contra) -> Answer:
        """Nodes that share terms with a text, by BM25; each has a score above 0."""
        ...

    def batch(self, asked: Sequence[tuple[Sought, W_contra]]) -> Answer:
        """Any number of the above, in as few requests as the engine can."""
        ...


class FusingSearcher(Searcher[W_contra], Protocol[W_contra]):
    """Asks an engine that fuses by itself."""

    def fused(
        self, embedding: Sequence[float], text: str, wanted: W_contra, how: FusedSearch
    ) -> Answer:
        """The best of vector and keyword search as the engine fuses them."""
        ...


@runtime_checkable
class DiverseSearcher(Searcher[W_contra], Protocol[W_contra]):
    """Asks an engine that has MMR."""

    def diverse(
        self, embedding: Sequence[float], wanted: W_contra, *, lambda_mult: float, candidates: int
    ) -> Answer:
        """Near nodes that do not repeat each other, in the order picked."""
        ...


# An engine's own words: for which nodes, and for which and how many.
N = TypeVar("N")
W = TypeVar("W")


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes(Generic[N, W]):
    """How an engine serves DEFAULT, SPARSE, TEXT_SEARCH, HYBRID and, if it has that, MMR.

    Attributes:
        engine: Its name, for messages.
        searcher: Asks it.
        compiled: Says in its words which nodes are meant.
        wanted: Says in its words how many of them.
        call: Carries out what the searcher returns.
    """

    engine: str
    searcher: Searcher[W]
    compiled: Callable[[Target], N]
    wanted: Callable[[int, N], W]
    call: Callable[[Callable[[], Answer]], Call[Answer]]

    def found(self, query: VectorStoreQuery, options: Options) -> Call[list[Candidate]]:
        """What a LlamaIndex query finds, best first; by MMR in the order picked.

        Args:
            query: The query. ``doc_ids=[]`` allows no document and finds nothing; ``node_ids=[]``
                restricts nothing.
            options: For MMR ``mmr_threshold``, ``mmr_prefetch_factor`` and ``mmr_prefetch_k``.

        Raises:
            UnsupportedModeError: The engine does not serve its mode.
            ConfigurationError: The query lacks what its mode needs, or has a value out of range.
            UnsupportedFilterError: The engine cannot evaluate the filters.
        """
        check_options(query, options)
        # LlamaIndex's own retriever always hands over node_ids=[]: no restriction. It hands over
        # doc_ids=[] only if its caller did: no document at all.
        nodes = self.compiled(Target(query.node_ids or None, query.doc_ids, query.filters))
        top_k = check_top_k(query.similarity_top_k)
        if query.mode == VectorStoreQueryMode.DEFAULT:
            embedding, wanted = embedding_of(query), self.wanted(top_k, nodes)
            return self.call(lambda: self.searcher.dense(embedding, wanted))
        if query.mode in KEYWORD_MODES:
            text, wanted = text_of(query), self.wanted(first_count(query.sparse_top_k, top_k), nodes)
            return self.call(lambda: self.searcher.keyword(text, wanted))
        if query.mode == VectorStoreQueryMode.HYBRID:
            return self._hybrid(query, nodes, top_k)
        if query.mode == VectorStoreQueryMode.MMR and isinstance(self.searcher, DiverseSearcher):
            return self._diverse(self.searcher, query, options, self.wanted(top_k, nodes))
        raise self._unsupported(query)

    def _hybrid(self, query: VectorStoreQuery, nodes: N, top_k: int) -> Call[list[Candidate]]:
        embedding, text = embedding_of(query), text_of(query)
        dense = self.wanted(top_k, nodes)
        keyword = self.wanted(first_count(query.sparse_top_k, top_k), nodes)
        most, fusion = first_count(query.hybrid_top_k, top_k), fusion_for(query.alpha)

        def one(rankings: list[list[Candidate]]) -> list[Candidate]:
            near, sharing = rankings
            return fused(near, sharing, fusion, top_k=most)

        both = self.call(lambda: self.searcher.batch([(embedding, dense), (text, keyword)]))
        return both.then(one)

    def _diverse(
        self, searcher: DiverseSearcher[W], query: VectorStoreQuery, options: Options, wanted: W
    ) -> Call[list[Candidate]]:
        picks = MmrOptions.of(query, options, top_k=query.similarity_top_k)
        embedding = embedding_of(query)
        return self.call(
            lambda: searcher.diverse(
                embedding, wanted, lambda_mult=picks.lambda_mult, candidates=picks.candidates
            )
        )

    def _unsupported(self, query: VectorStoreQuery) -> UnsupportedModeError:
        served = (
            ", HYBRID and MMR"
            if isinstance(self.searcher, DiverseSearcher)
            else " and HYBRID here; for MMR put the stage MMR() after a VectorRetriever"
        )
        return UnsupportedModeError(
            f"{self.engine} has no mode {query.mode!r}; it serves DEFAULT, SPARSE, TEXT_SEARCH"
            f"{served}"
        )


S = TypeVar("S", bound=EngineStore)


class EngineBackend(ABC, Generic[S, W]):
    """Asks a store of ours for nearest nodes, for keywords, or for both.

    A subclass says what the engine can do, who asks it, and what a search is in its words.

    Args:
        store: The store; whoever opened it closes it.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.

    Attributes:
        engine: Its name.
    """

    engine: ClassVar[str]

    def __init__(self, store: S, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations

    @property
    @abstractmethod
    def features(self) -> EngineFeatures:
        """What the engine does natively."""

    @property
    @abstractmethod
    def _searcher(self) -> FusingSearcher[W]:
        """Who asks it."""

    @cached_property
    def _has_mmr(self) -> bool:
        """Whether the engine has MMR; by this the store serves or refuses that mode too."""
        return isinstance(self._searcher, DiverseSearcher)

    @abstractmethod
    def _wanted(self, search: Search) -> W:
        """A search in its words.

        Raises:
            UnsupportedFilterError: It cannot evaluate the condition.
        """

    def _call(self, ask: Callable[[], Answer]) -> Call[Answer]:
        """What carries out what the searcher returns; a thread, where the engine blocks."""
        return Call(ask)

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Nearest nodes to an embedding, by the store's distance.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition; nothing was sent.
        """
        wanted, searcher = self._wanted(search), self._searcher
        return self._call(lambda: searcher.dense(embedding, wanted))

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Nodes that share terms with a text, by BM25; each has a score above 0.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition; nothing was sent.
        """
        wanted, searcher = self._wanted(search), self._searcher
        return self._call(lambda: searcher.keyword(text, wanted))

    def batch(self, asked: Sequence[EngineQuery]) -> Call[list[list[Candidate]]]:
        """Any number of searches, in as few requests as the engine can.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate a condition; nothing was sent.
        """
        wanted = [(_sought(each), self._wanted(each.search)) for each in asked]
        searcher = self._searcher
        return self._call(lambda: searcher.batch(wanted))

    def hybrid(
        self, vector: VectorQuery, keyword: KeywordQuery, choose: Choose, *, top_k: int
    ) -> Call[list[Candidate]]:
        """The chosen of both searches."""
        del top_k
        return self.batch([vector, keyword]).then(lambda legs: chosen_candidates(choose, *legs))

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        """The best of both as the engine fuses them.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition; nothing was sent.
        """
        wanted, searcher = self._wanted(search), self._searcher
        return self._call(lambda: searcher.fused(embedding, text, wanted, how))

    def describe(self) -> Mapping[str, object]:
        """The engine, where it is and how it is set up; never a secret."""
        return {"engine": self.engine, **self.store.describe()}
