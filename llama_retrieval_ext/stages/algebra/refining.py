"""Runs refining stages, ours and others', and checks the rankings that they return."""

import math
from collections.abc import Sequence
from itertools import pairwise

from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.errors import ExecutionError, ScoreError
from llama_retrieval_ext.execution.degraded import note_degraded
from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit, as_hit, ordered
from llama_retrieval_ext.stages.algebra.refine import Refine
from llama_retrieval_ext.stages.algebra.values import plan_of, ranking_of
from llama_retrieval_ext.stages.reranking.rescored import in_order, with_score

EMPTY = "it returned no hits; a reranker must return those that it got"


def refined(stage: Refine, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
    """The plan for the ranking that a stage makes of another, checked.

    A reranker that returns nothing leaves the order as it was, and the answer is degraded.

    Raises:
        ConfigurationError: The stage returns something that is no ranking.
        ExecutionError: It returns a hit that was not in the ranking.
        ScoreError: A score is not finite.
    """
    plan = plan_of(stage.refine_plan(query, hits), f"{type(stage).__name__}.refine_plan")
    ranking = checked(stage, (yield from plan), hits)
    if stage.reranks and hits and not ranking:
        note_degraded(repr(stage).partition("(")[0], EMPTY)
        return list(hits)
    return ranking


def checked(stage: Refine, found: object, hits: Sequence[Hit]) -> list[Hit]:
    """The ranking that a stage returned, each id once and best first.

    Args:
        stage: The stage.
        found: What it returned.
        hits: The ranking that it got.

    Raises:
        ConfigurationError: It is no ranking.
        ExecutionError: It has a hit that was not in the ranking.
        ScoreError: A score is not finite.
    """
    ranking = ranking_of(found, f"{type(stage).__name__}.refine_plan")
    # No pair a hit: thousands of these wake the garbage collector.
    places = {hit.node.node_id: place for place, hit in enumerate(hits)}
    kept: dict[str, Hit] = {}
    for hit in ranking:
        node_id = hit.node.node_id
        if node_id not in kept:
            place = places.get(node_id)
            if place is None and not stage.adds:
                raise ExecutionError(
                    f"{stage!r} returned node {node_id!r}, which was not in the ranking; a Refine "
                    "only drops, rescores and reorders hits: write a Retriever to find others"
                )
            kept[node_id] = _scored(stage, hit, None if place is None else hits[place])
    if not stage.keeps_order:
        return list(kept.values())
    before = [places.get(node_id, len(hits)) for node_id in kept]
    return _best_first(list(kept.values()), before, hits)


def _scored(stage: Refine, hit: NodeWithScore, before: Hit | None) -> Hit:
    made = hit if isinstance(hit, Hit) else _like(hit, before, repr(stage))
    if made.score is None:
        if before is not None and before.score is not None:
            return with_score(made, before.score, made.contributions)
    elif not math.isfinite(made.score):
        raise ScoreError(
            f"{stage!r} gave node {made.node.node_id!r} the score {made.score}; "
            "scores must be finite numbers"
        )
    return made


def _like(hit: NodeWithScore, before: Hit | None, source: str) -> Hit:
    """A plain hit with everything that is known of the one it was made from."""
    if before is None:
        return as_hit(hit, source=source)
    return before.model_copy(update={"node": hit.node, "score": hit.score})


def _best_first(ranking: list[Hit], places: Sequence[int], hits: Sequence[Hit]) -> list[Hit]:
    """The ranking with scores that fall; the places are those that its hits had before."""
    scores = [hit.score for hit in ranking if hit.score is not None]
    falls = all(first >= second for first, second in pairwise(scores))
    if falls or len(scores) < len(ranking):
        return ranking
    if any(first > second for first, second in pairwise(places)):
        return in_order(ranking)
    is_rescored = any(
        place < len(hits) and hits[place].score != hit.score
        for hit, place in zip(ranking, places, strict=True)
    )
    return ordered(ranking) if is_rescored else ranking
