"""Vector and keyword search of one store, or of two, fused."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Final, Self, TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import one_top_k
from llama_retrieval_ext.embeddings.resolve import languages_of, vector_share_of
from llama_retrieval_ext.errors import ConfigurationError, UnsupportedModeError
from llama_retrieval_ext.execution.context import (
    call,
    current_context,
    emit_fusion,
    is_heard,
    note_inquiry,
    recording,
    step,
)
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.legs import Ask, CircuitBreaker, Leg, ask, attempt
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.retrieval import embed_text
from llama_retrieval_ext.formulas.fusion import keyword_trust
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.hits import score_of
from llama_retrieval_ext.parameters import Count, Share
from llama_retrieval_ext.pipeline.fusion import (
    FusedId,
    Fusion,
    Weights,
    check_languages,
    resolved_min_success,
    resolved_weights,
    weighted_name,
    weights_for,
)
from llama_retrieval_ext.pipeline.tree import Sketch
from llama_retrieval_ext.pipeline.why_not import FieldWords
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.retrievers.store_retriever import (
    StoreRetriever,
    check_fields,
    keyword_text,
    note_fields,
    search_of,
    words_by_field,
)
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.fusion import WeightedSum
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    HybridBackend,
    HybridRankings,
    hybrid_backend,
)
from llama_retrieval_ext.stores.engine.pushdown import LEGS, FusedSearch, check_native
from llama_retrieval_ext.stores.open import Storage, source_of

LegWeights: TypeAlias = Mapping[str, float]
# Candidates of each leg: the usual number in the literature, and cheap.
CANDIDATES: Final = 100

# If keyword search finds fewer hits than candidates, the rest of the collection scores 0. With the
# last match as zero, the second of two nearly equal matches would count 0.
_ALL_MATCHES: Final = WeightedSum(
    normalise={"vector": Normalisation.MIN_MAX, "keyword": Normalisation.FROM_ZERO}
)
_PLAIN_SUM: Final = WeightedSum()

# A passage that is no nearer to a question than one is to these has little to do with it. With
# LocalEmbedding and 3,000 passages of cosqa, musique and 2wikimultihop each, none of 200 questions
# each is so far, and of 48 strings of random letters 62, 33 and 29 in a hundred.
_NONSENSE: Final = ("qwzx vbkj", "blorptang frumious", "xkcdplugh")


class HybridRetriever(StoreRetriever):
    """Fused vector and keyword search; each hit has the share of both.

    Both searches are one request if the engine supports it, else they run in parallel. If nodes are
    slow to read, a second request reads only the best ones. The answer is the same. If the
    embedding model fails, the answer comes from keyword search alone and is marked degraded, and
    vice versa.

    Args:
        store: A URL such as ``embedded:./kb``, a LlamaIndex vector store, or a
            ``VectorStoreIndex``. Without ``keyword_store`` it needs keyword search, or a docstore
            (see `KeywordRetriever`).
        keyword_store: Another store for keyword search, with the same nodes under the same ids: for
            instance vectors in Milvus, keywords in Elasticsearch. None if ``store`` has both.
        embed_model: The embedding model that the store was filled with.
        top_k: Number of hits if the query sets none; at least 1.
        filters: Conditions on metadata that every hit satisfies.
        scope: Scope that limits every query.
        fusion: Fusion of the two rankings, for instance `RRF` or `WeightedSum`; its weights name
            ``vector`` and ``keyword``. None for the sum of scores, scaled per ranking from 0 for
            its last candidate to 1 for its first (see below), which no engine supports for
            ``pushdown``.
        alpha: Weight of vector search in ``[0, 1]``; keyword search gets the rest. Shorthand for
            weights in the fusion. 1.0 and 0.0 disable the other leg. None for the share that the
            model declares (`LocalEmbedding` .15) if there is no ``fusion``, else a half.
        candidates: Minimum number of hits of each leg; more candidates improve the fusion. 100 is
            cheap and usual in the literature.
        languages: Languages that the embedding model knows, such as ``["en"]``; None for those that
            the model declares, as `LocalEmbedding` does, but only if neither ``alpha`` nor weights
            are given. Vectors have a tenth of the weight for a question in another script, and
            more for a mixed one, by its share of letters. Empty for no such limit.
        pushdown: Whether the engine fuses and returns only the best hits, which is faster, mainly
            over a network. By default this package fuses: with the same formula on every engine,
            any fusion and weights, and contributions on every hit, which engines do not return. See
            ``backend.features.fusions`` for the fusions of an engine. A question whose weights the
            engine does not support (see ``languages``) is fused by this package.
        collapse: Maximum number of hits of the fused ranking per document, or per value of a
            metadata field; candidates grow until there are ``top_k`` hits. None for no limit.
        similarity_top_k: LlamaIndex's name of ``top_k``; pass only one of them.
        min_success: Number of searches that must succeed: with 2, the query fails if either fails.
            None for the value of the fusion, or else 1.
        fields: The fields of the keyword search, with weights, such as ``{"title": 1}``; None for
            those of the store's `Schema`.
        name: Name in traces and ``Hit.source``; ``hybrid`` unless given.

    Scores are those of the fusion; see there.

    The sum of scores is the default because it keeps the lead of a hit over the next, which ranks
    lose: if only one search works for a question, its hits come first. The default is
    ``WeightedSum()``, and the weight of keyword search is multiplied by `keyword_trust`: scores
    that hardly differ say little. If fewer nodes than candidates share a term, keyword scores are
    scaled from 0, the score of all other nodes, and weights stay.

    Source:
        Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", ACM TOIS
        42(1), 2023, https://doi.org/10.1145/3596512: a convex combination is ahead of reciprocal
        rank fusion in and out of domain, with any normalisation.

    Raises:
        ConfigurationError: ``alpha`` is out of range, or given beside weights.
        UnsupportedModeError: The store has no keyword search and no docstore, or ``pushdown`` is
            set and the engine does not fuse by this fusion with these weights.
    """

    def __init__(  # noqa: PLR0913 - the five that every retriever has, and what makes it a hybrid
        self,
        store: Storage,
        *,
        keyword_store: Storage | None = None,
        embed_model: BaseEmbedding | None = None,
        top_k: Count = 10,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        fusion: Fusion | None = None,
        alpha: Share | None = None,
        candidates: Count = CANDIDATES,
        languages: Sequence[str] | None = None,
        pushdown: bool = False,
        collapse: Collapse | None = None,
        similarity_top_k: int | None = None,
        min_success: int | None = None,
        fields: Mapping[str, float] | None = None,
        name: str = "hybrid",
    ) -> None:
        hits = one_top_k(top_k, similarity_top_k)
        super().__init__(store, embed_model, top_k=hits, filters=filters, scope=scope, name=name)
        self.collapse, self.fields = collapse, fields
        features = self.backend.features
        self.keyword_source = self.source if keyword_store is None else source_of(keyword_store)
        if keyword_store is not None or features.keyword is None:
            self.requires_scope |= self.keyword.requires_scope  # raises without keyword search
            self.requires_principals |= self.keyword.requires_principals
        self._has_two_stores = self.keyword_source.backend.store is not self.backend.store
        self.fusion = _PLAIN_SUM if fusion is None else fusion
        self.uses_default_fusion = fusion is None
        self.candidates = candidates
        given_weights = _leg_weights(self.fusion, alpha)
        share = vector_share_of(self.embed_model) if fusion is None else 0.5
        self.weights = resolved_weights(given_weights, LEGS, (2 * share, 2 * (1 - share)))
        # A fusion that defines only `fuse` may take no weights.
        fuses_ids = type(self.fusion).fuse is Fusion.fuse
        declared = languages_of(self.embed_model) if given_weights is None and fuses_ids else ()
        codes = check_languages(declared if languages is None else languages)
        self.leg_languages = {"vector": codes}
        self.pushdown = pushdown
        if pushdown:
            self._check_native()
        self._nonsense: list[list[float]] = []  # embeddings, once they are needed
        self._breakers = {name: CircuitBreaker() for name in LEGS if self.weights[name] > 0}
        self.min_success = resolved_min_success(min_success, self.fusion, legs=len(self._breakers))
        in_one = features.one_round_trip and not self._has_two_stores and fuses_ids
        # The engine that takes both searches; None to search by legs.
        self._engine = hybrid_backend(self.backend) if pushdown or in_one else None

    def clone(self) -> Self:
        """Return a copy with own weights and searches, and circuit breakers without failures."""
        made = super().clone()
        made.weights, made.leg_languages = dict(self.weights), dict(self.leg_languages)
        for name in LEGS:
            if name in vars(self):
                vars(made)[name] = vars(self)[name].clone()
        made._breakers = {name: CircuitBreaker() for name in self._breakers}  # noqa: SLF001 - of this class
        return made

    def never_break(self) -> None:
        """Call both searches whatever failed before, for callers that are independent."""
        self._breakers = {name: CircuitBreaker(failures=sys.maxsize) for name in self._breakers}

    # Built when they are needed: most engines take both searches in one request.
    @cached_property
    def vector(self) -> VectorRetriever:
        """The vector search alone."""
        return VectorRetriever(self.source, embed_model=self.embed_model)

    @cached_property
    def keyword(self) -> KeywordRetriever:
        """The keyword search alone."""
        return KeywordRetriever(self.keyword_source)

    def sketch(self) -> Sketch:
        """Return the drawing: both searches, and the fusion."""
        model = "" if self.embed_model is None else type(self.embed_model).__name__
        searches = {"vector": f"vector search({model})", "keyword": "keyword search(BM25)"}
        legs = tuple(
            (weighted_name(leg, self.weights), Sketch(after=(searches[leg],)))
            for leg in LEGS
            if self.weights[leg] > 0
        )
        fusion = f"{self.fusion!r}" + (" in the engine" if self.pushdown else "")
        cut = f"top_k={self.top_k}" if self.collapse is None else f"{self.collapse!r}"
        engines = dict.fromkeys([self.backend.engine, self.keyword_source.backend.engine])
        title = f"{self.name}: {' and '.join(engines)}"
        return Sketch((), legs, (fusion, cut, *self.binding), title)

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Run both searches, then fuse."""
        if self.embed_model is None and self._embeds and query.embedding is None:
            raise self._no_model_error()  # here, so that the message names this retriever
        backend = self.keyword_source.backend
        if query.fields is not None:
            check_fields(query, backend.store)
        hits = yield from self._collapsed(partial(self._answer, set(self._breakers)), query)
        yield from note_fields(query, hits, backend, partial(self._passages, query))
        return hits

    def read_node(self, node_id: str) -> Plan[BaseNode | None]:
        """Return the node from one of the stores, ignoring scope."""
        node = yield from super().read_node(node_id)
        if node is None and self._has_two_stores:
            return (yield from self.keyword.read_node(node_id))
        return node

    def field_words(self, query: Query, node: BaseNode) -> FieldWords:
        """Return the words of a question in the searched fields of a node."""
        return words_by_field(query, node, self.keyword_source.backend)

    @property
    def _embeds(self) -> bool:
        return self.weights["vector"] > 0

    def _answer(self, legs: set[str], query: Query) -> Plan[list[Hit]]:
        """Return the fused hits of the legs; failed ones are removed from `legs`."""
        weights = weights_for(query.query_str, self.weights, self.leg_languages)
        both = (query.kept or {}).get(self._depth(query))
        failure = None
        if both is None and self._engine is not None and len(legs) == len(LEGS):
            breaker = self._breakers["vector"]
            embedded = yield from attempt("vector", "embedding", self._embed(query), breaker)
            failure = embedded.error
            if embedded.value is not None:
                return (yield from self._in_engine(self._engine, embedded.value, query, weights))
        if both is None:
            both = yield from self._by_legs(query, legs, failure)
        return (yield from self._fused(both, legs, query, weights))

    def _in_engine(
        self, engine: HybridBackend, embedding: Sequence[float], query: Query, weights: LegWeights
    ) -> Plan[list[Hit]]:
        """Return the hits of one request, which the engine fuses if it can and is to."""
        (text, factor), top_k, depth = keyword_text(query), query.top_k or 1, self._depth(query)
        how = self._native(weights, depth) if self.pushdown else None
        if how is not None:
            fused = call(engine.fused(embedding, text, search_of(query), how))
            hits = self._checked(fused, query, repr(self.fusion))
            return (yield from step(f"fusion in the engine by {self.fusion!r}", hits))
        # Nodes are read with the rankings if at least half of these may be chosen.
        needs_ids = self.fusion.reads_ids or recording() is not None
        nodes_last = 2 * top_k <= depth and not needs_ids
        search = search_of(query, top_k=depth)
        both = engine.hybrid(embedding, text, search, nodes_last=nodes_last)
        if factor != 1:
            both = both.then(
                lambda legs: replace(legs, keyword=[(k, factor * s) for k, s in legs.keyword])
            )
        plan = step("search in one round trip", self._of_one_request(both, query, weights))
        if both.coroutine is not None:
            return (yield from plan)
        # One thread makes both requests of an engine that blocks.
        ranking: list[Hit] = yield Call(lambda: run(plan))
        return ranking

    def _of_one_request(
        self, both: Call[HybridRankings], query: Query, weights: LegWeights
    ) -> Plan[list[Hit]]:
        rankings: HybridRankings = yield both
        trace = current_context().trace
        if trace is not None:
            trace.end_legs({"vector": rankings.vector, "keyword": rankings.keyword})
            if trace.verbose:
                self._note_pushdown(query, "both searches in one request")
        return (yield from self._fused(rankings, set(LEGS), query, weights))

    def _by_legs(
        self, query: Query, legs: set[str], failure: BaseException | None
    ) -> Plan[HybridRankings]:
        """Return the rankings of two requests in parallel; failed legs are removed from `legs`."""
        child, depth = query.for_child(), self._depth(query)
        asks = {
            name: Ask(
                Leg(name, self.vector if name == "vector" else self.keyword, breaker=breaker),
                child,
                depth,
                failure if name == "vector" else None,
            )
            for name, breaker in self._breakers.items()
            if name in legs
        }
        rankings = yield from ask(asks, min_success=self.min_success)
        legs.intersection_update(rankings)
        vector, keyword = (
            [Candidate(hit.node, score_of(hit)) for hit in rankings.get(leg, ())] for leg in LEGS
        )
        return HybridRankings.of(vector, keyword)

    def _fused(
        self, both: HybridRankings, legs: set[str], query: Query, weights: LegWeights
    ) -> Plan[list[Hit]]:
        """Return the hits that the fusion chooses from the rankings of both searches."""
        top_k = query.top_k or 1
        rankings = {"vector": both.vector, "keyword": both.keyword}
        for leg in rankings.keys() - legs:
            del rankings[leg]
        self._note_words(query, rankings)
        if query.kept is not None and len(legs) == len(self._breakers):
            query.kept[self._depth(query)] = both
        fusion = self.fusion
        if self.uses_default_fusion:
            fusion, weights = default_fusion(rankings, self._depth(query), weights)
        if type(fusion).fuse is Fusion.fuse:
            cutoff = query.cutoff if self.collapse is None else None
            best = fusion.fuse_ids(
                rankings, weights=weights, top_k=top_k, with_ties=True, cutoff=cutoff
            )
            hits = self._gated((yield from both.chosen(best, top_k=top_k)), query)
        else:  # it may look into the nodes
            hits_of_legs: dict[str, list[Hit]] = {}
            for leg, ranking in rankings.items():
                ids = [FusedId(node_id, score, ()) for node_id, score in ranking]
                candidates = yield from both.chosen(ids, top_k=len(ids))
                hits_of_legs[leg] = self._gated(candidates, query)
            hits = fusion.fuse_legs(hits_of_legs, weights, top_k, self.name)
        if is_heard():
            emit_fusion(self.name, fusion, rankings, weights, returned=len(hits))
        return hits

    def _note_words(
        self, query: Query, rankings: Mapping[str, Sequence[tuple[str, float | None]]]
    ) -> None:
        """Note what to look at if no search of the answer has found a word of the query."""
        if rankings.get("keyword"):
            current_context().session.shares_words = True
        elif "keyword" in rankings and rankings.get("vector"):
            nearest = rankings["vector"][0][1] or 0.0
            key = ("nearest", id(self.backend.store), query.query_str, query.condition)
            note_inquiry(key, lambda: self._far(query, nearest), always=True)

    def _far(self, query: Query, nearest: float) -> Plan[list[str]]:
        """Return the plan for the hint that the nearest passage is no nearer than to nonsense."""
        if current_context().session.shares_words or self.embed_model is None:
            return []
        if not self._nonsense:
            for text in _NONSENSE:
                self._nonsense.append((yield from embed_text(text, self.embed_model)))
        scores = [0.0]
        for embedding in self._nonsense:
            candidates = yield from call(self.backend.dense(embedding, search_of(query, top_k=1)))
            scores += [candidate.score for candidate in candidates]
        far = nearest <= max(scores)
        return ["no words in common; the nearest in meaning is far away"] if far else []

    def _depth(self, query: Query) -> int:
        """Return the number of candidates of each leg."""
        return max(self.candidates, query.top_k or 1)

    def _native(self, weights: LegWeights, depth: int) -> FusedSearch | None:
        """Return the engine's fusion with the weights for a query; None if it has none of these."""
        self._check_native()  # again: the collection may have another distance
        vector, keyword = (weights[leg] for leg in LEGS)
        for native in self.backend.features.fusions:
            if native.is_as(self.fusion, (vector, keyword)):
                return FusedSearch(self.fusion, (vector, keyword), depth)
        return None

    def _check_native(self) -> None:
        if self._has_two_stores:
            raise UnsupportedModeError(
                "pushdown=True: no engine fuses the searches of two stores; leave pushdown out"
            )
        native = self.backend.features.fusions
        check_native(native, self.fusion, self.weights, engine=self.backend.engine)


def default_fusion(
    rankings: Mapping[str, Sequence[tuple[str, float | None]]], candidates: int, weights: LegWeights
) -> tuple[WeightedSum, LegWeights]:
    """Return the fusion that `HybridRetriever` uses by default, and the weights for a query."""
    keyword = rankings.get("keyword", ())
    if len(keyword) < candidates:
        return _ALL_MATCHES, weights
    trust = keyword_trust([score or 0.0 for _, score in keyword])
    return _PLAIN_SUM, {**weights, "keyword": weights["keyword"] * trust}


def _leg_weights(fusion: Fusion, alpha: float | None) -> Weights:
    if alpha is None:
        return fusion.weights
    if fusion.weights is not None:
        raise ConfigurationError(
            f"got alpha={alpha} and a fusion with weights {fusion.weights}; give one of them"
        )
    return (alpha, 1 - alpha)
