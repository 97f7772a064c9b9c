"""Fusion by votes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from llama_retrieval_ext.formulas.borda import borda_count
from llama_retrieval_ext.stages.algebra.fusion import Fusion, LegRanking, Weights


@dataclass(frozen=True, slots=True, repr=False)
class Borda(Fusion):
    """Borda count: each leg votes with points for rank; what it did not rank shares the rest.

    Args:
        weights: By leg name, or in the order of the legs; None for the weights of the legs.
        min_success: How many legs must answer, or the query fails; None for what the legs say, or
            else 1.

    Source:
        `llama_retrieval_ext.formulas.borda`.
    """

    weights: Weights = None
    min_success: int | None = None

    def shares(self, legs: Sequence[LegRanking]) -> list[Mapping[str, float]]:
        """Weight times points."""
        candidates = list(dict.fromkeys(chain.from_iterable(leg.hits for leg in legs)))
        return [
            borda_count([list(leg.hits)], weights=[leg.weight], candidates=candidates)
            for leg in legs
        ]
