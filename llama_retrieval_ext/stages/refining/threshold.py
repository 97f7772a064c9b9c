"""A floor under the scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from llama_retrieval_ext.arguments import is_number
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit, score_of
from llama_retrieval_ext.stages.algebra.refine import Refine


@dataclass(frozen=True, slots=True)
class Threshold(Refine):
    """The hits whose score is at least so much, in their order.

    What a score means is up to what stands before: a cosine, the probability of a reranker with a
    declared scale. Scores of `RRF` depend on ranks alone, and those that a fusion normalised by the
    best and worst of a result say nothing about how good the best is; both make poor floors.

    Args:
        min_score: The lowest score that stays; finite.

    Raises:
        ConfigurationError: ``min_score`` is not finite.
        ScoreError: While a query is answered: a hit has no score, or one that is not finite.

    Examples:
        >>> Threshold(0.3)
        Threshold(min_score=0.3)

    """

    fast: ClassVar[bool] = True
    min_score: float

    def __post_init__(self) -> None:
        if not is_number(self.min_score):
            raise ConfigurationError(f"min_score must be a finite number, got {self.min_score!r}")

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ARG002
        """Return the hits that stay."""
        return [hit for hit in hits if score_of(hit) >= self.min_score]
