"""Settings of a pipeline with a fusion, or of a graph walk, and rebuilding it with others."""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode, TextNode

from llama_retrieval_ext.arguments import arguments_of, record_argument, takes_argument
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.execution.plan import Plan, finished
from llama_retrieval_ext.execution.retrieval import HonoursQuery, hits_of
from llama_retrieval_ext.formulas.cosine import Vector, cosines, matrix
from llama_retrieval_ext.formulas.mmr import maximal_marginal_relevance
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.pipeline.fusion import Fusion, weights_for
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import Rewrite
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever, default_fusion
from llama_retrieval_ext.retrievers.query_fusion import QueryFusionRetriever
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stages.rerank.mmr import MMR
from llama_retrieval_ext.stages.selection import Top

# Hits with scores, best first, by leg.
LegRankings: TypeAlias = Mapping[str, Sequence[tuple[str, float | None]]]
Fused: TypeAlias = HybridRetriever | FusionRetriever

R = TypeVar("R", bound=Retriever)

_FUSED_HITS: Final = 100
# Number of parts that the total weight is divided into, by the number of legs.
_PARTS: Final = {2: 10, 3: 5, 4: 4, 5: 4}
_FEWEST_PARTS: Final = 2
_DEPTHS: Final = (20, 50, 100, 200)
_LAMBDAS: Final = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_RRF_CONSTANTS: Final = (20.0, 60.0)
_SCALES: Final = (Normalisation.MIN_MAX, Normalisation.Z_SCORE, Normalisation.DISTRIBUTION_BASED)


@dataclass(frozen=True, slots=True)
class Setting:
    """Values of the tunable parameters of a pipeline.

    Attributes:
        weights: Weights by leg; they add up to 1.
        fusion: Fusion without weights; None for the default formula of `HybridRetriever`.
        depth: Number of hits of each leg to fuse.
        mmr_lambda: Lambda of the MMR after the fusion; None if there is no tunable MMR.
        damping: Damping of the walk of a `GraphRetriever`; None for other retrievers.
    """

    weights: tuple[tuple[str, float], ...] = ()
    fusion: Fusion | None = None
    depth: int = 0
    mmr_lambda: float | None = None
    damping: float | None = None

    @property
    def formula(self) -> str:
        """The fusion as an expression."""
        return "the default fusion" if self.fusion is None else repr(self.fusion)

    def value_of(self, parameter: str) -> str:
        """Return the value of a parameter as text."""
        weights = ", ".join(f"{leg} {weight:.2g}" for leg, weight in self.weights)
        return {
            "fusion and weights": f"{self.formula} with {weights}",
            "depth": str(self.depth),
            "MMR lambda": str(self.mmr_lambda),
            "damping": str(self.damping),
        }[parameter]


class LegRecorder(Retriever):
    """Leg with the rewrites of its pipeline before it; keeps its hits for later stages."""

    def __init__(self, leg: Leg, rewrites: Sequence[Rewrite] = ()) -> None:
        super().__init__(top_k=None, name=leg.name)
        self.leg = leg
        self.source = Pipeline(leg.retriever, rewrites=rewrites) if rewrites else leg.retriever
        self.hits: dict[str, list[Hit]] = {}

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """The retriever."""
        return [self.source]

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Retrieve once for all settings that are tried."""
        child = self._for_children(query)
        hits = yield from hits_of(self.source, child, top_k=self.leg.top_k)
        self.hits[query.query_str] = hits
        return hits


@dataclass(slots=True)
class FusedPipeline:
    """A `HybridRetriever` or fused legs, perhaps inside a pipeline with MMR."""

    parameters: ClassVar = ("fusion and weights", "depth", "MMR lambda")

    retriever: BaseRetriever
    source: Fused = field(init=False)
    mmr: MMR | None = field(init=False, default=None)
    legs: dict[str, LegRecorder] = field(init=False)
    nodes: dict[str, BaseNode] = field(init=False, default_factory=dict)  # the legs have them all
    _vectors: dict[str, tuple[Vector, dict[str, Vector]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        outer, inner = _unwrapped(self.retriever)
        self.source = _fused(inner)
        refines = [stage for frame in reversed(outer) for stage in frame.refines]
        first = next((stage for stage in refines if not isinstance(stage, Top)), None)
        self.mmr = first if isinstance(first, MMR) else None
        rewrites = [stage for frame in outer for stage in frame.rewrites]
        if isinstance(self.source, FusionRetriever):
            rewrites += self.source.branches.rewrites
        self.legs = {leg.name: LegRecorder(leg, rewrites) for leg in _legs(self.source)}

    @property
    def default(self) -> Setting:
        """The current setting of the pipeline."""
        source = self.source
        whole = math.fsum(source.weights.values())
        is_default = isinstance(source, HybridRetriever) and source.uses_default_fusion
        return Setting(
            tuple((name, weight / whole) for name, weight in source.weights.items()),
            None if is_default else _with_fields(source.fusion, weights=None),
            self.depth,
            None if self.mmr is None else self.mmr.lambda_mult,
        )

    @property
    def depth(self) -> int:
        """Number of hits of the deepest leg."""
        source = self.source
        if isinstance(source, HybridRetriever):
            return max(source.candidates, source.top_k or 1)
        depths = [leg.top_k or getattr(leg.retriever, "top_k", None) for leg in source.legs]
        return max([depth for depth in depths if isinstance(depth, int)], default=_FUSED_HITS)

    def settings_of(self, parameter: str, current: Setting) -> list[Setting]:
        """Return the settings that differ from the current one in a parameter; may be empty."""
        settings: list[Setting] = []
        if parameter == "fusion and weights":
            settings = self._fusions(current)
        elif parameter == "MMR lambda" and current.mmr_lambda is not None:
            settings = [replace(current, mmr_lambda=share) for share in _LAMBDAS]
        elif parameter == "depth" and all(
            isinstance(leg.retriever, HonoursQuery) for leg in _legs(self.source)
        ):
            least = self.source.top_k or 1
            depths = [depth for depth in _DEPTHS if least <= depth < self.depth]
            settings = [replace(current, depth=depth) for depth in depths]
        return [setting for setting in settings if setting != current]

    def _fusions(self, current: Setting) -> list[Setting]:
        names = [name for name, _ in current.weights]
        parts = _PARTS.get(len(names), _FEWEST_PARTS)
        divisions = [
            shares
            for shares in product(range(parts + 1), repeat=len(names))
            if sum(shares) == parts
        ]
        divisions.sort(key=lambda shares: float(np.var(shares)))  # near equal shares first
        grid = [
            tuple((name, share / parts) for name, share in zip(names, shares, strict=True))
            for shares in divisions
        ]
        # Keyed by expression: fusions with a scale for each leg cannot be hashed.
        formulas = {repr(formula): formula for formula in [current.fusion, *_formulas(self.source)]}
        return [replace(current, weights=w, fusion=f) for f in formulas.values() for w in grid]

    def ranking(self, setting: Setting, question: str, rankings: LegRankings) -> list[str]:
        """Return the first node ids of the pipeline with a setting, best first."""
        legs = {name: list(hits)[: setting.depth] for name, hits in rankings.items()}
        fusion = setting.fusion
        weights = weights_for(question, dict(setting.weights), self.source.leg_languages)
        if fusion is None:
            fusion, weights = default_fusion(legs, setting.depth, weights)
        fused = fusion.fuse_ids(legs, weights=weights, top_k=_FUSED_HITS)
        ids = [fused_id.node_id for fused_id in fused]
        return ids if setting.mmr_lambda is None else self._diverse(setting, question, ids)

    def _diverse(self, setting: Setting, question: str, ids: list[str]) -> list[str]:
        mmr = self.mmr
        cut = ids[: self.source.top_k]
        if mmr is None or not cut:
            return cut
        query, vectors = self._vectors_of(question, mmr)
        rows = matrix([vectors[id_] for id_ in cut], dim=len(query))
        picks = maximal_marginal_relevance(
            cosines(rows, query),
            rows,
            top_k=mmr.top_k or len(cut),
            lambda_mult=mmr.lambda_mult if setting.mmr_lambda is None else setting.mmr_lambda,
        )
        return [cut[index] for index, _ in picks]

    def _vectors_of(self, question: str, mmr: MMR) -> tuple[Vector, dict[str, Vector]]:
        if question not in self._vectors:
            hits: dict[str, Hit] = {}
            for leg in self.legs.values():
                if question not in leg.hits:  # saved by an earlier process, without embeddings
                    leg.search(question)
                hits |= {hit.node.node_id: hit for hit in leg.hits[question]}
            query, vectors = run(mmr.vectors_plan(Query.of(question), list(hits.values())))
            self._vectors[question] = query, dict(zip(hits, vectors, strict=True))
        return self._vectors[question]

    def rebuilt(self, setting: Setting) -> BaseRetriever:
        """Return the pipeline with another setting; it shares stores and legs with this one."""
        rebuilt: Retriever = _with_fusion(self.source, setting)
        outer, _ = _unwrapped(self.retriever)
        mmr = self.mmr
        if mmr is not None and setting.mmr_lambda is not None:
            mmr = replace(mmr, lambda_mult=setting.mmr_lambda)
        for frame in reversed(outer):
            refines = [mmr if mmr and stage is self.mmr else stage for stage in frame.refines]
            rebuilt = bound_as(
                frame,
                Pipeline(
                    rebuilt,
                    rewrites=frame.rewrites,
                    refines=refines,
                    top_k=frame.top_k,
                    filters=frame.filters,
                    name=frame.name,
                ),
            )
        return rebuilt


def _unwrapped(retriever: BaseRetriever) -> tuple[list[Pipeline], BaseRetriever]:
    """Return the pipelines around a retriever, outermost first, and the inner retriever."""
    outer: list[Pipeline] = []
    while isinstance(retriever, Pipeline):
        outer.append(retriever)
        retriever = retriever.source
    return outer, retriever


def _fused(retriever: BaseRetriever) -> Fused:
    """Return the retriever if its fusion can be repeated from rankings, else raise."""
    kinds = (HybridRetriever, FusionRetriever, QueryFusionRetriever)
    if type(retriever) not in kinds or not isinstance(retriever, HybridRetriever | FusionRetriever):
        raise ConfigurationError(
            f"tune takes a HybridRetriever, fused legs (a | b) >> RRF(), a seeded GraphRetriever, "
            f"and pipelines around them; got {type(retriever).__name__}"
        )
    if isinstance(retriever, HybridRetriever):
        if retriever.pushdown:
            raise ConfigurationError(
                "with pushdown the engine fuses, and its legs give no rankings; tune the retriever "
                "with pushdown=False"
            )
    elif retriever.branches.fan_out is not None:
        raise ConfigurationError(
            "tune takes one query for each question; tune with num_queries=1, without a fan-out"
        )
    fusion = retriever.fusion
    takes_weights = takes_argument(type(fusion), "weights")
    if type(fusion).fuse is not Fusion.fuse or not takes_weights:
        raise ConfigurationError(
            f"tune sets the weights of a fusion by scores or ranks, such as WeightedSum() and "
            f"RRF(); got {fusion!r}"
        )
    return retriever


def _legs(source: Fused) -> tuple[Leg, ...]:
    if isinstance(source, FusionRetriever):
        return source.legs
    depth = max(source.candidates, source.top_k or 1)
    legs = {"vector": copy(source.vector), "keyword": copy(source.keyword)}
    for leg in legs.values():
        leg.top_k, leg.filters = depth, source.filters
    return tuple(Leg(name, bound_as(source, leg)) for name, leg in legs.items())


def _formulas(source: Fused) -> list[Fusion]:
    unscored = getattr(source.fusion, "unscored", None)
    options: dict[str, Any] = {} if unscored is None else {"unscored": unscored}
    formulas: list[Fusion] = [WeightedSum(normalise=scale, **options) for scale in _SCALES]
    if isinstance(source, HybridRetriever):
        by_leg = {"vector": Normalisation.MIN_MAX, "keyword": Normalisation.FROM_ZERO}
        formulas[0] = WeightedSum(normalise=by_leg)
    formulas += [RRF(k) for k in _RRF_CONSTANTS]
    return [_with_fields(formula, min_success=source.fusion.min_success) for formula in formulas]


def _with_fields(fusion: Fusion, **values: object) -> Fusion:
    changed: Fusion = replace(fusion, **values)  # type: ignore[type-var]  # they all are dataclasses
    return changed


def _with_fusion(source: Fused, setting: Setting) -> Retriever:
    weights = dict(setting.weights)
    chosen = setting.fusion
    if isinstance(source, HybridRetriever):
        return remade(
            source,
            store=source.source,
            keyword_store=None if source.keyword_source is source.source else source.keyword_source,
            embed_model=source.embed_model,
            candidates=setting.depth,
            languages=source.leg_languages["vector"] or None,
            fusion=None if chosen is None else _with_fields(chosen, weights=weights),
            alpha=round(weights["vector"], 4) if chosen is None else None,
        )
    fusion = _with_fields(chosen or source.fusion, weights=weights)
    if isinstance(source, QueryFusionRetriever):
        legs = _cut(source, setting)
        return remade(source, retrievers=legs, mode=fusion, retriever_weights=None)
    fused = FusionRetriever(
        replace(source.branches, legs=_cut(source, setting)),
        fusion,
        top_k=source.top_k,
        filters=source.filters,
        name=source.name,
    )
    return bound_as(source, fused)


def _cut(source: FusionRetriever, setting: Setting) -> tuple[Leg, ...]:
    is_less = setting.depth < FusedPipeline(source).depth
    return tuple(replace(leg, top_k=setting.depth) if is_less else leg for leg in source.legs)


def remade(original: R, **changed: Any) -> R:  # noqa: ANN401 - the constructor's arguments
    """Return a retriever with some other arguments, in the same scope.

    Stores and graphs are passed open, because some cannot be opened twice by URL; they stay
    recorded as they were.
    """
    arguments = arguments_of(original)
    retriever = type(original)(**{**arguments, **changed})
    for name in {"store", "graph"} & changed.keys():
        record_argument(retriever, name, arguments[name])
    return bound_as(original, retriever)


def bound_as(original: Retriever, retriever: R) -> R:
    """Bind a new retriever to the scope and objects of another one, and return it."""
    for name in ("scope", "requires_scope", "requires_principals", "object_map"):
        setattr(retriever, name, getattr(original, name))
    return retriever


_DAMPINGS: Final = (0.3, 0.4, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9)
_SEED: Final = "seed"


class _Replay(Retriever):
    """Retriever that returns saved hits; the walk needs only their ids and scores."""

    def __init__(self) -> None:
        super().__init__(top_k=None, name=_SEED)
        self.hits: Sequence[Hit] = ()

    def plan(self, query: Query) -> Plan[list[Hit]]:
        return finished(list(self.hits[: query.top_k]))


@dataclass(slots=True)
class SeededGraph:
    """A `GraphRetriever` with a seed; the settings of the seed are tuned separately, before."""

    parameters: ClassVar = ("damping",)

    retriever: GraphRetriever
    seed: BaseRetriever
    legs: dict[str, LegRecorder] = field(init=False)
    nodes: dict[str, BaseNode] = field(init=False, default_factory=dict)
    _walks: dict[float | None, tuple[_Replay, GraphRetriever]] = field(
        init=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        self.legs = {_SEED: LegRecorder(Leg(_SEED, self.seed, top_k=self.depth))}

    @property
    def default(self) -> Setting:
        """The current setting."""
        return Setting(((_SEED, 1.0),), None, self.depth, damping=self.retriever.damping)

    @property
    def depth(self) -> int:
        """Number of hits used from the seed."""
        return max(self.retriever.candidates, self.retriever.top_k or 1)

    def settings_of(self, _: str, current: Setting) -> list[Setting]:
        """Return the settings that differ from the current one in damping."""
        settings = [replace(current, damping=damping) for damping in _DAMPINGS]
        return [setting for setting in settings if setting != current]

    def ranking(self, setting: Setting, question: str, rankings: LegRankings) -> list[str]:
        """Return the first node ids of the walk with a damping, best first."""
        if setting.damping not in self._walks:
            replay = _Replay()
            self._walks[setting.damping] = replay, self._built(replay, setting)
        replay, walk = self._walks[setting.damping]
        hits = rankings.get(_SEED, ())
        replay.hits = [Hit(node=TextNode(id_=id_), score=score) for id_, score in hits]
        nodes = {hit.node.node_id: hit.node for hit in walk.retrieve(question)}
        self.nodes |= nodes
        return list(nodes)

    def rebuilt(self, setting: Setting) -> BaseRetriever:
        """Return the retriever with another damping; it shares store, graph and seed."""
        return self._built(self.seed, setting)

    def _built(self, seed: BaseRetriever, setting: Setting) -> GraphRetriever:
        original = self.retriever
        return remade(
            original,
            store=original.backend,
            graph=original.graphs,
            embed_model=original.embed_model,
            seed=seed,
            damping=setting.damping,
        )
