"""Vector and keyword search of one store, fused."""

from collections.abc import Mapping, Sequence
from typing import Final

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import is_number, of_type, one_top_k
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import (
    call,
    current_context,
    emit_fusion,
    note_legs,
    recording,
    step,
)
from llama_retrieval_ext.execution.legs import Ask, CircuitBreaker, Leg, Rankings, ask, attempt
from llama_retrieval_ext.execution.plan import Plan, finished
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.pipeline.fusion import FusedId, Fusion, fuse
from llama_retrieval_ext.pipeline.leg_weights import (
    Weights,
    resolved_min_success,
    resolved_weights,
    weighted_name,
)
from llama_retrieval_ext.pipeline.tree import Sketch
from llama_retrieval_ext.query import Query, Scope, check_top_k
from llama_retrieval_ext.results import Hit, scored_ids
from llama_retrieval_ext.retrievers.confidence import Confidence, LegScores
from llama_retrieval_ext.retrievers.store_retriever import (
    KeywordRetriever,
    StoreRetriever,
    VectorRetriever,
    no_keyword_search,
    search_of,
)
from llama_retrieval_ext.stages.fusion import WeightedSum
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.engine.backend import (
    EngineQuery,
    KeywordQuery,
    ScoredId,
    VectorQuery,
    fusing,
    hybrid_queries,
)
from llama_retrieval_ext.stores.engine.pushdown import LEGS, FusedSearch, check_native
from llama_retrieval_ext.stores.open import Storage
from llama_retrieval_ext.stores.search import search_hybrid

# Candidates of each leg: the usual number in the literature, and cheap.
CANDIDATES: Final = 100
_ONE_ROUND_TRIP: Final = "search in one round trip"

# If keyword search finds fewer hits than candidates, the rest of the collection scores 0. With the
# last match as zero, the second of two nearly equal matches would count 0.
_ALL_MATCHES: Final = WeightedSum(
    normalise={"vector": Normalisation.MIN_MAX, "keyword": Normalisation.FROM_ZERO}
)
_PLAIN_SUM: Final = WeightedSum()


class HybridRetriever(StoreRetriever):
    """Fused vector and keyword search of one store; each hit has the share of both.

    Both searches are one request if the engine supports it, else they run in parallel. If nodes are
    slow to read, a second request reads only the best ones. The answer is the same. If the
    embedding model fails, the answer comes from keyword search alone and is marked degraded, and
    vice versa.

    Args:
        store: A URL such as ``embedded:./kb``, or a LlamaIndex vector store with keyword search.
        embed_model: The embedding model that the store was filled with.
        top_k: Number of hits if the query sets none; at least 1.
        filters: Conditions on metadata that every hit satisfies.
        scope: Scope that limits every query.
        fusion: Fusion of the two rankings, for instance `RRF` or `WeightedSum`; its weights name
            ``vector`` and ``keyword``. None for the sum of scores, scaled per ranking from 0 for
            its last candidate to 1 for its first (see below), which no engine supports for
            ``pushdown``.
        alpha: Weight of vector search in ``[0, 1]``; keyword search gets the rest. Shorthand for
            weights in the fusion. 1.0 and 0.0 disable the other leg.
        candidates: Minimum number of hits of each leg; more candidates improve the fusion. 100 is
            cheap and usual in the literature.
        pushdown: Whether the engine fuses and returns only the best hits, which is faster, mainly
            over a network. By default this package fuses: with the same formula on every engine,
            any fusion and weights, and contributions on every hit, which engines do not return. See
            ``backend.features.fusions`` for the fusions of an engine.
        collapse: Maximum number of hits of the fused ranking per document, or per value of a
            metadata field; candidates grow until there are ``top_k`` hits. None for no limit.
        similarity_top_k: LlamaIndex's name of ``top_k``; pass only one of them.
        min_success: Number of searches that must succeed: with 2, the query fails if either fails.
            None for the value of the fusion, or else 1.
        name: Name in traces and ``Hit.source``; ``hybrid`` unless given.

    Scores are those of the fusion; see there.

    Attributes:
        confidence: Function that estimates from both rankings whether the best hit answers; a
            knowledge base sets it. None for no estimate; ``pushdown`` gives none either.
        needs_ids: Whether ``confidence`` needs node ids; otherwise an engine may use its own ids.

    The sum of scores is the default because it keeps the lead of a hit over the next, which ranks
    lose: if only one search works for a question, its hits come first. The default is
    ``WeightedSum()`` with one exception: if fewer nodes than candidates share a term, keyword
    scores are scaled from 0, the score of all other nodes.

    Source:
        Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", ACM TOIS
        42(1), 2023, https://doi.org/10.1145/3596512: a convex combination is ahead of reciprocal
        rank fusion in and out of domain, with any normalisation.

    Raises:
        ConfigurationError: ``alpha`` is out of range, or given beside weights.
        UnsupportedModeError: The store has no keyword search, or ``pushdown`` is set and the engine
            does not fuse by this fusion with these weights.
    """

    confidence: Confidence | None = None
    needs_ids: bool = False

    def __init__(  # noqa: PLR0913 - the five that every retriever has, and what makes it a hybrid
        self,
        store: Storage,
        *,
        embed_model: BaseEmbedding | None = None,
        top_k: int = 10,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        fusion: Fusion | None = None,
        alpha: float | None = None,
        candidates: int = CANDIDATES,
        pushdown: bool = False,
        collapse: Collapse | None = None,
        similarity_top_k: int | None = None,
        min_success: int | None = None,
        name: str = "hybrid",
    ) -> None:
        hits = one_top_k(top_k, similarity_top_k)
        super().__init__(store, embed_model, top_k=hits, filters=filters, scope=scope, name=name)
        self._collapse_by(collapse)
        self.fusion = _PLAIN_SUM if fusion is None else of_type(fusion, Fusion, "fusion")
        self.uses_default_fusion = fusion is None
        self.candidates = check_top_k(candidates)
        self.weights = resolved_weights(_leg_weights(self.fusion, alpha), LEGS, (1.0, 1.0))
        features = self.backend.features
        if features.keyword is None:
            raise no_keyword_search(self.backend)
        self._has_one_round_trip = features.one_round_trip
        self.pushdown = pushdown
        if pushdown:
            self._check_native()
        self._breakers = {name: CircuitBreaker() for name in LEGS if self.weights[name] > 0}
        self.min_success = resolved_min_success(min_success, self.fusion, legs=len(self._breakers))

    def sketch(self) -> Sketch:
        """Return the drawing: both searches of one store, and the fusion."""
        model = "" if self.embed_model is None else type(self.embed_model).__name__
        searches = {"vector": f"vector search({model})", "keyword": "keyword search(BM25)"}
        legs = tuple(
            (weighted_name(leg, self.weights), Sketch(after=(searches[leg],)))
            for leg in LEGS
            if self.weights[leg] > 0
        )
        fusion = f"{self.fusion!r}" + (" in the engine" if self.pushdown else "")
        cut = f"top_k={self.top_k}" if self.collapse is None else f"{self.collapse!r}"
        return Sketch((), legs, (fusion, cut, *self.binding), f"{self.name}: {self.backend.engine}")

    def prefetch(self, queries: Sequence[Query]) -> Plan[None]:
        """Run all searches of the queries, batched if supported; none if the circuit is open."""
        if any(breaker.is_open for breaker in self._breakers.values()):
            return finished(None)
        return super().prefetch(queries)

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Run both searches of the store, then fuse."""
        if self._embeds and query.embedding is None:
            self._model()  # raises here so that the message names this retriever
        legs = set(self._breakers)
        if self.collapse is None:
            return self._both(query, legs)
        return self._collapsed(
            lambda depth: self._both(query.but(top_k=depth), legs), query, self.collapse
        )

    def _both(self, query: Query, legs: set[str]) -> Plan[list[Hit]]:
        """Return the fused answers of the legs; failed ones are removed from `legs`."""
        candidates = self._depth(query)
        failures: dict[str, BaseException] = {}
        one_round_trip = self._has_one_round_trip and len(legs) == len(LEGS)
        if "vector" in legs and (self.pushdown or one_round_trip):
            embedding = self._embed(query)
            embedded = yield from attempt(
                "vector", "embedding", embedding, self._breakers["vector"]
            )
            if embedded.error is None:
                hits = yield from self._at_once(query, embedded.result(), candidates)
                if hits is not None:
                    return hits
            else:
                failures["vector"] = embedded.error
        rankings = yield from self._side_by_side(query, candidates, legs, failures)
        self._note_confidence(query, {name: scored_ids(each) for name, each in rankings.items()})
        fusion = self._fitting(rankings, candidates)
        hits = fuse(fusion, rankings, weights=self.weights, top_k=query.top_k, source=self.name)
        emit_fusion(self.name, fusion, rankings, self.weights, returned=len(hits))
        return hits

    def _depth(self, query: Query) -> int:
        """Return the number of candidates of each leg."""
        return max(self.candidates, query.top_k or 1)

    def _fitting(self, rankings: Mapping[str, Sequence[object]], candidates: int) -> Fusion:
        """Return the fusion for these rankings."""
        return default_fusion(rankings, candidates) if self.uses_default_fusion else self.fusion

    def _check_native(self) -> None:
        native = self.backend.features.fusions
        check_native(native, self.fusion, self.weights, engine=self.backend.engine)

    def _at_once(
        self, query: Query, embedding: Sequence[float], candidates: int
    ) -> Plan[list[Hit] | None]:
        """Return the hits of one request; None if the engine has no such request."""
        text = query.query_str
        if self.pushdown:
            self._check_native()  # again: the collection may have another distance
            vector, keyword = (self.weights[leg] for leg in LEGS)
            how = FusedSearch(self.fusion, (vector, keyword), candidates)
            fused = fusing(self.backend).fused(embedding, text, search_of(query), how)
            by = f"fusion in the engine by {self.fusion!r}"
            return (yield from step(by, self._checked(call(fused), query, repr(self.fusion))))
        queries = hybrid_queries(embedding, text, search_of(query, top_k=candidates))
        return (yield from step(_ONE_ROUND_TRIP, self._search_both(*queries, query)))

    def _search_both(
        self, vector: VectorQuery, keyword: KeywordQuery, query: Query
    ) -> Plan[list[Hit] | None]:
        """Return the hits of one request; None if there is no such request."""
        rankings: dict[str, Sequence[ScoredId]] = {}

        def choose(near: Sequence[ScoredId], sharing: Sequence[ScoredId]) -> list[FusedId]:
            rankings.update(zip(LEGS, (near, sharing), strict=True))
            self._note_confidence(query, rankings)
            return self._fitting(rankings, vector.search.top_k).fuse_ids(
                rankings, weights=self.weights, top_k=query.top_k, with_ties=True
            )

        best = yield from search_hybrid(
            self.backend,
            vector,
            keyword,
            choose,
            top_k=query.top_k or 1,
            by_key=not (self.needs_ids or self.fusion.reads_ids) and recording() is None,
        )
        if best is None:
            return None
        note_legs(rankings)
        self._note_pushdown(query, "both searches in one request")
        fusion = self._fitting(rankings, vector.search.top_k)
        emit_fusion(self.name, fusion, rankings, self.weights, returned=len(best))
        return self._gated(best, query)

    @property
    def _embeds(self) -> bool:
        return self.weights["vector"] > 0

    def _searches(self, query: Query) -> Plan[list[EngineQuery]]:
        searches: list[EngineQuery] = []
        if self.pushdown:
            return searches
        search = search_of(query, top_k=self._depth(query))
        if self.weights["vector"] > 0:
            searches.append(VectorQuery(tuple((yield from self._embed(query))), search))
        if self.weights["keyword"] > 0:
            searches.append(KeywordQuery(query.query_str, search))
        return searches

    def _note_confidence(self, query: Query, legs: LegScores) -> None:
        # A knowledge base without calibrations is false, and is not called.
        estimate = self.confidence(query, legs) if self.confidence else None
        if estimate is not None:
            current_context().session.confidences.append(estimate)

    def _side_by_side(
        self, query: Query, top_k: int, legs: set[str], failures: Mapping[str, BaseException]
    ) -> Plan[Rankings]:
        child = query.for_child()
        asks: dict[str, Ask] = {
            name: Ask(self._leg(name), child, top_k, failures.get(name))
            for name in LEGS
            if name in legs
        }
        rankings = yield from ask(asks, min_success=self.min_success)
        legs.intersection_update(rankings)
        return rankings

    def _leg(self, name: str) -> Leg:
        """Return one search as a separate retriever."""
        retriever = (
            VectorRetriever(self.backend, embed_model=self.embed_model)
            if name == "vector"
            else KeywordRetriever(self.backend)
        )
        retriever.embed_model = self.embed_model  # for later stages, if vector search fails
        return Leg(name, retriever, breaker=self._breakers[name])


def default_fusion(rankings: Mapping[str, Sequence[object]], candidates: int) -> WeightedSum:
    """Return the fusion that `HybridRetriever` uses by default."""
    return _ALL_MATCHES if len(rankings.get("keyword", ())) < candidates else _PLAIN_SUM


def _leg_weights(fusion: Fusion, alpha: float | None) -> Weights:
    if alpha is None:
        return fusion.weights
    if fusion.weights is not None:
        raise ConfigurationError(
            f"got alpha={alpha} and a fusion with weights {fusion.weights}; give one of them"
        )
    if not (is_number(alpha) and 0 <= alpha <= 1):
        raise ConfigurationError(
            f"alpha must be between 0 (keyword only) and 1 (vector only), got {alpha!r}"
        )
    return (alpha, 1 - alpha)
