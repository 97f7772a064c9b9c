"""Runs fusions, ours and those of users that define `fuse` alone, and checks their rankings."""

import inspect
import math
from collections.abc import Mapping, Sequence

from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.errors import ConfigurationError, ExecutionError, ScoreError
from llama_retrieval_ext.ranking import Hit, as_hit
from llama_retrieval_ext.stages.algebra.fusion import Fusion
from llama_retrieval_ext.stages.algebra.values import ranking_of
from llama_retrieval_ext.stages.reranking.rescored import in_order


def fuse(
    fusion: Fusion,
    rankings: Mapping[str, Sequence[NodeWithScore]],
    *,
    weights: Mapping[str, float],
    top_k: int | None = None,
    source: str,
) -> list[Hit]:
    """The ranking that a fusion makes of several.

    Args:
        fusion: Ours, or one with a `fuse` of its own, which may take fewer arguments.
        rankings: The legs that answered, by name.
        weights: The weight of each leg.
        top_k: How many hits to return; None for all.
        source: What the hits name as their source.

    Raises:
        ConfigurationError: The fusion returns something that is no ranking, or takes no weights
            and there are some.
        ExecutionError: It returns a hit that no leg found.
        ScoreError: A score is missing or not finite.
    """
    if type(fusion).fuse is Fusion.fuse:
        return fusion.fuse(rankings, weights=weights, top_k=top_k, source=source)
    options = {"weights": weights, "top_k": top_k, "source": source}
    parameters = inspect.signature(fusion.fuse).parameters
    has_rest = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    taken = {name: value for name, value in options.items() if has_rest or name in parameters}
    if "weights" not in taken and len(set(weights.values())) > 1:
        raise ConfigurationError(
            f"{type(fusion).__name__}.fuse takes no weights, and the legs have some: {weights}; "
            "write `def fuse(self, rankings, *, weights=None)`, or leave them out"
        )
    answering = {name: ranking for name, ranking in rankings.items() if weights[name] > 0}
    found = fusion.fuse(answering, **taken)  # type: ignore[arg-type]  # as far as it takes them
    return _checked(fusion, found, rankings, source)[:top_k]


def _checked(
    fusion: Fusion, found: object, rankings: Mapping[str, Sequence[NodeWithScore]], source: str
) -> list[Hit]:
    name = type(fusion).__name__
    known = {hit.node.node_id for ranking in rankings.values() for hit in ranking}
    hits: list[Hit] = []
    for hit in ranking_of(found, f"{name}.fuse"):
        if hit.node.node_id not in known:
            raise ExecutionError(
                f"{name}.fuse returned node {hit.node.node_id!r}, which no leg found"
            )
        if hit.score is not None and not math.isfinite(hit.score):
            raise ScoreError(f"{name}.fuse gave node {hit.node.node_id!r} the score {hit.score}")
        hits.append(as_hit(hit, source=source))
    return in_order(hits)
