"""Reordering and rescoring of hits, with their contributions preserved."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.results import Contribution, Hit


def reranked(
    hits: Sequence[Hit], picks: Sequence[tuple[int, float]], *, by: str, ceiling: float = math.inf
) -> list[Hit]:
    """Return the hits in a new order with new scores.

    The order of the picks is preserved: a score that is lower than a later one is raised to it. The
    original value is the score of the hit's last contribution. The shares of the contributions sum
    to the score, so the earlier shares become 0; their ranks and scores are unchanged.

    Args:
        hits: The ranking so far.
        picks: Index in ``hits`` and new, finite score; best first, each index at most once.
        by: The name of the new contribution.
        ceiling: The maximum score.

    Returns:
        Fresh hits in descending order of score; equal scores in the order of node ids.
    """
    scores = _falling([(hits[place].node.node_id, score) for place, score in picks], ceiling)
    reordered: list[Hit] = []
    for rank, ((place, raw), score) in enumerate(zip(picks, scores, strict=True), start=1):
        contribution = Contribution(by, rank, raw, 1.0, score)
        reordered.append(
            with_score(hits[place], score, (*replaced(hits[place], place + 1), contribution))
        )
    return reordered


def in_order(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits in the given order, without repeats, with scores adjusted as in `reranked`.

    Hits without a score get the lowest score.
    """
    first: dict[str, Hit] = {}
    for hit in hits:
        first.setdefault(hit.node.node_id, hit)
    lowest = min((hit.score for hit in first.values() if hit.score is not None), default=0.0)
    given = [
        (node_id, lowest if hit.score is None else hit.score) for node_id, hit in first.items()
    ]
    return [
        hit if hit.score == score else _raised(hit, score)
        for hit, score in zip(first.values(), _falling(given, math.inf), strict=True)
    ]


def with_score(hit: Hit, score: float | None, contributions: tuple[Contribution, ...]) -> Hit:
    """Return a copy of the hit with another score and other contributions."""
    return hit.model_copy(update={"score": score, "contributions": contributions})


def found_by(hit: Hit, rank: int) -> tuple[Contribution, ...]:
    """Return the contributions of a hit; one for its source if it has none."""
    whole = Contribution(hit.source or "retriever", rank, hit.score, 1.0, hit.score or 0.0)
    return hit.contributions or (whole,)


def replaced(hit: Hit, rank: int) -> tuple[Contribution, ...]:
    """Return `found_by` with all shares 0, because another score replaced the hit's."""
    return tuple(replace(part, share=0.0) for part in found_by(hit, rank))


def _raised(hit: Hit, score: float) -> Hit:
    if not hit.contributions:
        return with_score(hit, score, ())
    *earlier, last = hit.contributions
    share = last.share + score - (hit.score or 0.0)
    return with_score(hit, score, (*earlier, replace(last, share=share)))


def _falling(scored: Sequence[tuple[str, float]], ceiling: float) -> list[float]:
    """Return the scores, raised to the later ones where these are higher, at most ``ceiling``."""
    raised: list[float] = []
    least, behind = -math.inf, ""
    for node_id, score in reversed(scored):
        least = max(score, least if node_id < behind else math.nextafter(least, math.inf))
        raised.append(least)
        behind = node_id
    scores: list[float] = []
    most, before = ceiling, ""
    for (node_id, _), score in zip(scored, reversed(raised), strict=True):
        most = min(score, most if before < node_id else math.nextafter(most, -math.inf))
        scores.append(most)
        before = node_id
    return scores


# Tolerance for rounding errors in probabilities.
_ROUNDING = 1e-6


# Scale of a reranker's scores, which determines the meaning of a threshold: any number, as of
# cross-encoders, which the logistic function makes a probability; a number in [0, 1] that is
# comparable between queries; or any number that is meaningful only for ordering.
ScoreKind: TypeAlias = Literal["logit", "probability", "unknown"]


def calibrated(score: float, kind: ScoreKind) -> float:
    """Return the score as a probability if its scale is known; higher is better.

    Each score is converted on its own, never relative to the best and worst of a result: that would
    give a weak best hit a perfect score.

    Raises:
        ScoreError: The score is not finite, or out of range for its kind.

    Examples:
        >>> calibrated(0.0, "logit"), calibrated(-3.5, "unknown")
        (0.5, -3.5)

    """
    if not math.isfinite(score):
        raise ScoreError(f"a reranker gave the score {score}; expected a finite number")
    if kind == "logit":
        return 0.5 + 0.5 * math.tanh(0.5 * score)  # the logistic function, without overflow
    if kind == "probability":
        if not -_ROUNDING <= score <= 1.0 + _ROUNDING:
            raise ScoreError(
                f"a reranker declared to give probabilities gave {score}; "
                "declare score_kind='logit' or 'unknown'"
            )
        return min(max(score, 0.0), 1.0)
    return score
