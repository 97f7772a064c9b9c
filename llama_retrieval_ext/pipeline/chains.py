"""Chains of stages, so that ``a >> (b >> c)`` equals ``(a >> b) >> c``, and how they run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext.errors import ExecutionError, ScoreError
from llama_retrieval_ext.execution.context import note_degraded, step
from llama_retrieval_ext.execution.legs import or_degraded
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.hits import as_hit, ordered, score_of
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.pipeline.stages import (
    FanOut,
    Operand,
    Refine,
    RefineFunction,
    Rewrite,
    check_last,
    plan_of,
    query_of,
    ranking_of,
)
from llama_retrieval_ext.query import Query, reworded
from llama_retrieval_ext.reordering import in_order, with_score
from llama_retrieval_ext.results import Hit, with_relevance


@dataclass(frozen=True, slots=True, repr=False)
class RewriteChain(Rewrite):
    """Sequence of rewrites."""

    rewrites: tuple[Rewrite, ...]

    def rewrite_plan(self, query: Query) -> Plan[Query]:
        """Return the plan for the query after all rewrites."""
        return (yield from rewritten(query, self.rewrites))

    def __repr__(self) -> str:
        return " >> ".join(map(repr, self.rewrites))


@dataclass(frozen=True, slots=True, repr=False)
class FanOutChain(FanOut):
    """Sequence of rewrites and a final fan-out."""

    rewrites: tuple[Rewrite, ...]
    fan: FanOut

    def fan_out_plan(self, query: Query) -> Plan[Sequence[str | QueryBundle]]:
        """Return the plan for the queries derived from the rewritten query."""
        changed = yield from rewritten(query, self.rewrites)
        return (yield from self.fan.fan_out_plan(changed))

    def __repr__(self) -> str:
        return " >> ".join(map(repr, (*self.rewrites, self.fan)))


@dataclass(frozen=True, slots=True, repr=False)
class RefineChain(Refine):
    """Sequence of refinements."""

    refines: tuple[Refine, ...]

    def __post_init__(self) -> None:
        check_last(self.refines)

    @property
    def keeps_order(self) -> bool:
        """Whether the last stage keeps the order; all stages before it do."""
        return self.refines[-1].keeps_order

    @property
    def adds(self) -> bool:
        """Whether one of the stages adds hits."""
        return any(stage.adds for stage in self.refines)

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """Return the plan for the ranking after all refinements."""
        ranking = list(hits)
        for stage in self.refines:
            ranking = yield from step(stage, refined(stage, query, ranking))
        return ranking

    def __repr__(self) -> str:
        return " >> ".join(map(repr, self.refines))


@dataclass(frozen=True, slots=True, repr=False)
class FusionChain(Operand):
    """A fusion with the stages after it, ``RRF() >> Top(10)``, without branches."""

    fusion: Fusion
    refines: tuple[Refine, ...]

    def __post_init__(self) -> None:
        check_last(self.refines)

    if TYPE_CHECKING:

        def __rshift__(
            self, other: Refine | BaseNodePostprocessor | RefineFunction
        ) -> "FusionChain": ...

    def __repr__(self) -> str:
        return " >> ".join(map(repr, (self.fusion, *self.refines)))


def rewritten(query: Query, rewrites: Sequence[Rewrite]) -> Plan[Query]:
    """Return the plan for the query after all rewrites, in order."""
    for stage in rewrites:
        name = f"{type(stage).__name__}.rewrite_plan"
        plan = plan_of(stage.rewrite_plan(query), name)
        rewrite = yield from or_degraded(repr(stage), step(stage, plan), query)
        query = _within(query, query_of(rewrite, name))
    return query


def fanned_out(query: Query, stage: FanOut) -> Plan[list[Query]]:
    """Return the plan for the derived queries; the query itself if there are none."""
    name = f"{type(stage).__name__}.fan_out_plan"
    plan = plan_of(stage.fan_out_plan(query), name)
    queries = yield from or_degraded(repr(stage), step(stage, plan), [query])
    return [_within(query, query_of(form, name)) for form in queries or [query]]


def _within(query: Query, rewrite: str | QueryBundle) -> Query:
    """Return a derived query within the original's scope; a stage can only narrow the scope."""
    if isinstance(rewrite, str):
        return reworded(query, rewrite)
    if not isinstance(rewrite, Query):
        return replace(
            query,
            query_str=rewrite.query_str,
            image_path=rewrite.image_path,
            custom_embedding_strs=rewrite.custom_embedding_strs,
            embedding=rewrite.embedding,
        )
    if rewrite.scope != query.scope or rewrite.filters is not query.filters:
        rewrite = rewrite.but(filters=query.filters, scope=query.scope)
    return rewrite if rewrite.at_least else replace(rewrite, at_least=query.at_least)


EMPTY = "it returned no hits; a reranker must return those that it got"


def refined(stage: Refine, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
    """Return the plan for the checked result of a stage.

    If a reranker returns nothing, the ranking is unchanged and the answer is degraded.
    """
    plan = plan_of(stage.refine_plan(query, hits), f"{type(stage).__name__}.refine_plan")
    ranking = checked(stage, (yield from plan), hits)
    if stage.reranks and hits and not ranking:
        note_degraded(repr(stage).partition("(")[0], EMPTY)
        return list(hits)
    return ranking


def checked(stage: Refine, answer: object, hits: Sequence[Hit]) -> list[Hit]:
    """Return the ranking that a stage returned, with unique ids and best first."""
    ranking = ranking_of(answer, f"{type(stage).__name__}.refine_plan")
    # Not one tuple per hit: thousands of tuples trigger the garbage collector.
    places = {hit.node.node_id: index for index, hit in enumerate(hits)}
    kept: dict[str, Hit] = {}
    for hit in ranking:
        node_id = hit.node.node_id
        if node_id not in kept:
            index = places.get(node_id)
            if index is None and not stage.adds:
                raise ExecutionError(
                    f"{stage!r} returned node {node_id!r}, which was not in the ranking; a Refine "
                    "only drops, rescores and reorders hits: write a Retriever to find others"
                )
            kept[node_id] = _scored(stage, hit, None if index is None else hits[index])
    if not stage.keeps_order:
        return list(kept.values())
    before = [places.get(node_id, len(hits)) for node_id in kept]
    return _best_first(list(kept.values()), before, hits)


def _scored(stage: Refine, hit: NodeWithScore, before: Hit | None) -> Hit:
    if isinstance(hit, Hit):
        scored = hit
    elif before is None:
        scored = as_hit(hit, source=repr(stage))
    else:  # a plain hit, with the further fields of the hit that it was made from
        scored = before.model_copy(update={"node": hit.node, "score": hit.score})
    if scored.score is None:
        if before is not None and before.score is not None:
            return with_score(scored, before.score, scored.contributions)
    elif not math.isfinite(scored.score):
        raise ScoreError(
            f"{stage!r} gave node {scored.node.node_id!r} the score {scored.score}; "
            "scores must be finite numbers"
        )
    return scored


def _best_first(ranking: list[Hit], places: Sequence[int], hits: Sequence[Hit]) -> list[Hit]:
    """Return the ranking with descending scores; ``places`` are the earlier indices of its hits.

    The hits of a stage that rescores or reorders carry their relevance to it: the score, or the
    rank if the scores contradict the order.
    """
    scores = [hit.score for hit in ranking if hit.score is not None]
    if len(scores) < len(ranking):
        return ranking
    falls = all(first >= second for first, second in pairwise(scores))
    is_reordered = any(first > second for first, second in pairwise(places))
    if is_reordered and not falls:
        size = len(ranking)
        return [with_relevance(hit, 1 - at / size) for at, hit in enumerate(in_order(ranking))]
    is_rescored = any(
        index < len(hits) and hits[index].score != score
        for score, index in zip(scores, places, strict=True)
    )
    if not (is_reordered or is_rescored):
        return ranking
    best_first = ranking if falls else ordered(ranking)
    return [with_relevance(hit, score_of(hit)) for hit in best_first]
