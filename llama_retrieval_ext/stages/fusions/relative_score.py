"""The two weighted sums that LlamaIndex names."""

from dataclasses import dataclass

from llama_retrieval_ext.stages.fusions.normalisation import Normalisation
from llama_retrieval_ext.stages.fusions.weighted_sum import WeightedSum


@dataclass(frozen=True, slots=True, repr=False)
class RelativeScore(WeightedSum):
    """Weighted sum of scores stretched to ``[0, 1]`` in each leg: LlamaIndex's RELATIVE_SCORE.

    Examples:
        >>> RelativeScore().normalise
        Normalisation.MIN_MAX

    """


@dataclass(frozen=True, slots=True, repr=False)
class DistributionBased(WeightedSum):
    """Weighted sum of scores placed between three standard deviations, by Qdrant's formula.

    Less moved by a single outlier than min-max, and the last hit of a leg keeps a score. Not cut:
    the best of many keyword hits lies beyond three deviations as a rule, and what it is ahead by
    counts. LlamaIndex's formula has n where this one has n - 1, and 1 for equal scores:
    ``QueryFusionRetriever(mode="dist_based_score")``, or ``normalise=`` with
    ``Normalisation.DISTRIBUTION_BASED_LLAMA_INDEX``.

    Examples:
        >>> DistributionBased().normalise
        Normalisation.DISTRIBUTION_BASED_UNCUT

    """

    normalise: Normalisation = Normalisation.DISTRIBUTION_BASED_UNCUT
