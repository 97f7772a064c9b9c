"""Older hits count less."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from llama_retrieval_ext.execution.degraded import note_degraded
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Contribution, Hit, ordered, score_of
from llama_retrieval_ext.stages.algebra.refine import Refine
from llama_retrieval_ext.stages.llm.told import told
from llama_retrieval_ext.stages.refining.recency import Curve, Recency
from llama_retrieval_ext.stages.reranking.rescored import found_by, with_score


@dataclass(frozen=True, slots=True, repr=False)
class ScoreDecay(Refine):
    """Hits with scores that fade with their age, in the new order.

    With the factor ``f`` of its age a score ``s`` becomes ``s - (1 - f) |s|``: ``f`` times ``s``,
    or, for a score below 0, which that would raise, as far down as a positive one. So older is
    never better. Mind the scale: scores of `RRF` lie close together, so age soon outweighs rank.

    Args:
        key: The metadata key with the date or number.
        half_life: The age at which a score is halved: in days for dates, for numbers in their unit.
        curve: How scores fade.
        origin: Where age is 0: None for the moment of the query, an ISO date, or a number where the
            values are numbers. See `Recency`.
        unknown: The factor of hits whose age is not told, in ``[0, 1]``. Where it is told but
            cannot be read, the answer is also marked degraded.

    Raises:
        ConfigurationError: A value is out of range, or ``origin`` is no date.
        ScoreError: While a query is answered: a hit has no score, or one that is not finite.

    The factor is the score of the hit's last contribution, and what it took away its share.

    Examples:
        >>> ScoreDecay("published", half_life=365)
        ScoreDecay(key='published', half_life=365)

    """

    fast: ClassVar[bool] = True
    key: str
    _: KW_ONLY
    half_life: float
    curve: Curve = Curve.EXPONENTIAL
    origin: float | str | None = None
    unknown: float = 1.0

    def __post_init__(self) -> None:
        self._recency()  # checks the arguments

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ARG002
        """Return the faded hits, in their new order."""
        recency = self._recency()
        factors = [recency.factor(hit.node.metadata) for hit in hits]
        unread = factors.count(None)
        if unread:
            note_degraded(
                "ScoreDecay",
                f"{unread} of {len(hits)} hits have no readable age under {self.key!r}; "
                f"their factor is {self.unknown}",
            )
        return ordered(
            _faded(hit, rank, self.unknown if factor is None else factor)
            for rank, (hit, factor) in enumerate(zip(hits, factors, strict=True), start=1)
        )

    def _recency(self) -> Recency:
        return Recency(
            self.key,
            half_life=self.half_life,
            curve=self.curve,
            origin=self.origin,
            unknown=self.unknown,
        )

    def __repr__(self) -> str:
        return told(self)


def _faded(hit: Hit, rank: int, factor: float) -> Hit:
    score = score_of(hit)
    less = (1.0 - factor) * abs(score)
    own = Contribution("ScoreDecay", rank, factor, 1.0, -less)
    return with_score(hit, score - less, (*found_by(hit, rank), own))
