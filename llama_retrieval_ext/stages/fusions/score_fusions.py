"""Fusions that combine scores otherwise than by adding them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from llama_retrieval_ext.arguments import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.comb_max import comb_max
from llama_retrieval_ext.formulas.comb_mnz import comb_mnz
from llama_retrieval_ext.stages.algebra.fusion import (
    Fusion,
    LegRanking,
    Unscored,
    Weights,
)
from llama_retrieval_ext.stages.fusions.normalisation import Normalisation

_SOME_BELOW_ZERO: Final = frozenset(
    {
        Normalisation.Z_SCORE,
        Normalisation.DISTRIBUTION_BASED_UNCUT,
        Normalisation.DISTRIBUTION_BASED_LLAMA_INDEX,
    }
)


@dataclass(frozen=True, slots=True, repr=False)
class Max(Fusion):
    """The best weighted score that any leg gives: LlamaIndex's SIMPLE.

    Raw scores, so it is for legs of one scale, such as several indexes of one embedding model.

    Args:
        weights: By leg name, or in the order of the legs; None for the weights of the legs.
        unscored: What happens to a hit without a score.
        min_success: How many legs must answer, or the query fails; None for what the legs say, or
            else 1.

    Source:
        `llama_retrieval_ext.formulas.comb_max`.
    """

    weights: Weights = None
    unscored: Unscored = Unscored.REFUSE
    min_success: int | None = None

    def __post_init__(self) -> None:
        Fusion.__post_init__(self)
        of_type(self.unscored, Unscored, "unscored")

    def shares(self, legs: Sequence[LegRanking]) -> list[Mapping[str, float]]:
        """Weight times raw score."""
        return [
            comb_max([leg.scaled(Normalisation.NONE, self.unscored)], weights=[leg.weight])
            for leg in legs
        ]

    def combine(self, shares: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """The best share of every id."""
        return comb_max(shares)


@dataclass(frozen=True, slots=True, repr=False)
class CombMNZ(Fusion):
    """Sum of normalised scores times the number of legs that found the hit: rewards agreement.

    Args:
        weights: By leg name, or in the order of the legs; None for the weights of the legs.
        normalise: The common scale; it must not give negative scores.
        unscored: What happens to a hit without a score.
        min_success: How many legs must answer, or the query fails; None for what the legs say, or
            else 1.

    Raises:
        ConfigurationError: The scale has negative scores.

    Source:
        `llama_retrieval_ext.formulas.comb_mnz`.
    """

    weights: Weights = None
    normalise: Normalisation = Normalisation.MIN_MAX
    unscored: Unscored = Unscored.REFUSE
    min_success: int | None = None

    def __post_init__(self) -> None:
        Fusion.__post_init__(self)
        of_type(self.unscored, Unscored, "unscored")
        of_type(self.normalise, Normalisation, "normalise")
        if self.normalise in _SOME_BELOW_ZERO:
            raise ConfigurationError(
                "CombMNZ multiplies scores by the number of legs, which makes negative ones worse "
                f"for being found often; {self.normalise.name} has such, MIN_MAX and RANK have not"
            )

    def shares(self, legs: Sequence[LegRanking]) -> list[Mapping[str, float]]:
        """Weight times normalised score."""
        return [
            comb_mnz([leg.scaled(self.normalise, self.unscored)], weights=[leg.weight])
            for leg in legs
        ]

    def combine(self, shares: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """The sum of the shares of every id times their number."""
        return comb_mnz(shares)
