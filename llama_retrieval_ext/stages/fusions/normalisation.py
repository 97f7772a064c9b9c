"""How the scores of a leg are brought to a common scale before they are added."""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial

from llama_retrieval_ext.formulas.normalise.distribution_based import distribution_based
from llama_retrieval_ext.formulas.normalise.min_max import min_max
from llama_retrieval_ext.formulas.normalise.rank_normalise import rank_normalise
from llama_retrieval_ext.formulas.normalise.theoretical_min_max import theoretical_min_max
from llama_retrieval_ext.formulas.normalise.z_score import z_score

Scores = Mapping[str, float]


class Normalisation(Enum):
    """A scale for the scores of one leg; each is a formula of ``formulas.normalise``.

    ``COSINE`` is for cosines alone: half of one plus the score, so that -1 is 0 and 1 is 1.
    ``FROM_ZERO`` is for scores that are never below 0, as BM25's: parts of the highest one.
    ``DISTRIBUTION_BASED_UNCUT`` lets scores that lie far out be below 0 or above 1, as in Qdrant;
    ``DISTRIBUTION_BASED_LLAMA_INDEX`` does, too, and divides by n where Qdrant divides by n - 1.
    """

    NONE = "none"
    MIN_MAX = "min_max"
    Z_SCORE = "z_score"
    DISTRIBUTION_BASED = "distribution_based"
    DISTRIBUTION_BASED_UNCUT = "distribution_based_uncut"
    DISTRIBUTION_BASED_LLAMA_INDEX = "distribution_based_llama_index"
    COSINE = "cosine"
    FROM_ZERO = "from_zero"
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
    Normalisation.DISTRIBUTION_BASED_UNCUT: partial(distribution_based, cut=False),
    Normalisation.DISTRIBUTION_BASED_LLAMA_INDEX: partial(
        distribution_based, cut=False, sample=False, equal=1.0
    ),
    Normalisation.COSINE: partial(theoretical_min_max, low=-1.0, high=1.0),
    Normalisation.FROM_ZERO: partial(theoretical_min_max, low=0.0),
    Normalisation.RANK: rank_normalise,
}
