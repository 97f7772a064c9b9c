"""LlamaIndex's query modes, each as what it asks of an engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_retrieval_ext.errors import ConfigurationError, UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.query import check_top_k
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.engine.backend import Candidate, Sought, fused
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
from llama_retrieval_ext.stores.engine.vector_store import MMR_OPTIONS, MmrOptions, Options, Target

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

_KEYWORD_MODES: Final = {VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH}


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
        _check_options(query, options)
        # LlamaIndex's own retriever always hands over node_ids=[]: no restriction. It hands over
        # doc_ids=[] only if its caller did: no document at all.
        nodes = self.compiled(Target(query.node_ids or None, query.doc_ids, query.filters))
        top_k = check_top_k(query.similarity_top_k)
        if query.mode == VectorStoreQueryMode.DEFAULT:
            embedding, wanted = _embedding(query), self.wanted(top_k, nodes)
            return self.call(lambda: self.searcher.dense(embedding, wanted))
        if query.mode in _KEYWORD_MODES:
            text, wanted = _text(query), self.wanted(_first(query.sparse_top_k, top_k), nodes)
            return self.call(lambda: self.searcher.keyword(text, wanted))
        if query.mode == VectorStoreQueryMode.HYBRID:
            return self._hybrid(query, nodes, top_k)
        if query.mode == VectorStoreQueryMode.MMR and isinstance(self.searcher, DiverseSearcher):
            return self._diverse(self.searcher, query, options, self.wanted(top_k, nodes))
        raise self._unsupported(query)

    def _hybrid(self, query: VectorStoreQuery, nodes: N, top_k: int) -> Call[list[Candidate]]:
        embedding, text = _embedding(query), _text(query)
        dense = self.wanted(top_k, nodes)
        keyword = self.wanted(_first(query.sparse_top_k, top_k), nodes)
        most, fusion = _first(query.hybrid_top_k, top_k), _fusion(query.alpha)

        def one(rankings: list[list[Candidate]]) -> list[Candidate]:
            near, sharing = rankings
            return fused(near, sharing, fusion, top_k=most)

        both = self.call(lambda: self.searcher.batch([(embedding, dense), (text, keyword)]))
        return both.then(one)

    def _diverse(
        self, searcher: DiverseSearcher[W], query: VectorStoreQuery, options: Options, wanted: W
    ) -> Call[list[Candidate]]:
        picks = MmrOptions.of(query, options, top_k=query.similarity_top_k)
        embedding = _embedding(query)
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


def _first(given: int | None, top_k: int) -> int:
    return top_k if given is None else check_top_k(given)


def _embedding(query: VectorStoreQuery) -> list[float]:
    if query.query_embedding is None:
        raise ConfigurationError(f"a query in mode {query.mode!s} needs a query_embedding")
    return query.query_embedding


def _text(query: VectorStoreQuery) -> str:
    if query.query_str is None:
        raise ConfigurationError(f"a query in mode {query.mode!s} needs a query_str")
    return query.query_str


def _fusion(alpha: float | None) -> Fusion:
    if alpha is None:
        return RRF()
    if not 0.0 <= alpha <= 1.0:
        raise ConfigurationError(
            f"alpha must be between 0 (keywords alone) and 1 (vectors alone), got {alpha}; for "
            "reciprocal rank fusion leave it out"
        )
    return WeightedSum(weights=(alpha, 1.0 - alpha))


def _check_options(query: VectorStoreQuery, options: Options) -> None:
    known = MMR_OPTIONS if query.mode == VectorStoreQueryMode.MMR else frozenset[str]()
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConfigurationError(f"mode {query.mode!s} has no options {', '.join(unknown)}")
    if query.mmr_threshold is not None and not known:
        raise ConfigurationError(
            f"mode {query.mode!s} has no mmr_threshold; leave it out, or use mode MMR"
        )
    for name in ("output_fields", "embedding_field"):
        if getattr(query, name) is not None:
            raise ConfigurationError(
                f"this store has no {name}: it returns whole nodes and has one embedding "
                f"a node; leave {name} out"
            )
