"""How the scores of a leg are brought to a common scale before they are added."""

from collections.abc import Callable, Mapping
from enum import Enum

from llama_retrieval_ext.formulas.normalise.distribution_based import distribution_based
from llama_retrieval_ext.formulas.normalise.min_max import min_max
from llama_retrieval_ext.formulas.normalise.rank_normalise import rank_normalise
from llama_retrieval_ext.formulas.normalise.z_score import z_score

Scores = Mapping[str, float]


class Normalisation(Enum):
    """A scale for the scores of one leg; each is a formula of ``formulas.normalise``."""

    NONE = "none"
    MIN_MAX = "min_max"
    Z_SCORE = "z_score"
    DISTRIBUTION_BASED = "distribution_based"
    RANK = "rank"

    def apply(self, scores: Scores) -> Scores:
        """The scores on the new scale; higher is still better."""
        return _FORMULAS[self](scores)

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


_FORMULAS: Mapping[Normalisation, Callable[[Scores], Scores]] = {
    Normalisation.NONE: dict,
    Normalisation.MIN_MAX: min_max,
    Normalisation.Z_SCORE: z_score,
    Normalisation.DISTRIBUTION_BASED: distribution_based,
    Normalisation.RANK: rank_normalise,
}
