"""Fusions: reciprocal ranks, weighted sums, CombMAX, CombMNZ, Borda count, consensus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.borda import borda_shares
from llama_retrieval_ext.formulas.comb import (
    best_of_legs,
    comb_max_shares,
    comb_mnz_shares,
    sum_times_count,
)
from llama_retrieval_ext.formulas.consensus import in_at_least
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.formulas.rrf import reciprocal_rank_shares
from llama_retrieval_ext.formulas.weighted_sum import weighted_sum_shares
from llama_retrieval_ext.pipeline.fusion import Fusion, LegRanking, Unscored, weights_of
from llama_retrieval_ext.pipeline.leg_weights import Weights

_SOME_BELOW_ZERO: Final = frozenset(
    {
        Normalisation.Z_SCORE,
        Normalisation.DISTRIBUTION_BASED_UNCUT,
        Normalisation.DISTRIBUTION_BASED_LLAMA_INDEX,
    }
)


@dataclass(frozen=True, slots=True, repr=False)
class Max(Fusion):
    """Best weighted score of any leg: LlamaIndex's SIMPLE.

    It uses raw scores, so all legs need one scale, such as several indexes of one embedding model.

    Args:
        weights: By leg name, or in leg order. None takes the weights of the legs.
        unscored: Treatment of hits without a score.
        min_success: Minimum number of legs that must answer, else the query fails. None takes the
            setting of the legs, or else 1.

    Source:
        `llama_retrieval_ext.formulas.comb`.
    """

    weights: Weights = None
    unscored: Unscored = Unscored.REFUSE
    min_success: int | None = None

    def __post_init__(self) -> None:
        Fusion.__post_init__(self)
        of_type(self.unscored, Unscored, "unscored")

    def shares(self, legs: Sequence[LegRanking]) -> Sequence[Mapping[str, float]]:
        """Return weight times raw score."""
        scores = [leg.scaled(Normalisation.NONE, self.unscored) for leg in legs]
        return comb_max_shares(scores, weights=weights_of(legs))

    def combine(self, shares: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """Return the best share of each id."""
        return best_of_legs(shares)


@dataclass(frozen=True, slots=True, repr=False)
class CombMNZ(Fusion):
    """Sum of normalised scores times the number of legs that found the hit: rewards agreement.

    Args:
        weights: By leg name, or in leg order. None takes the weights of the legs.
        normalise: The common scale; it must not produce negative scores.
        unscored: Treatment of hits without a score.
        min_success: Minimum number of legs that must answer, else the query fails. None takes the
            setting of the legs, or else 1.

    Raises:
        ConfigurationError: The scale has negative scores.

    Source:
        `llama_retrieval_ext.formulas.comb`.
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

    def shares(self, legs: Sequence[LegRanking]) -> Sequence[Mapping[str, float]]:
        """Return weight times normalised score."""
        scores = [leg.scaled(self.normalise, self.unscored) for leg in legs]
        return comb_mnz_shares(scores, weights=weights_of(legs))

    def combine(self, shares: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """Return the sum of the shares of each id times their number."""
        return sum_times_count(shares)


@dataclass(frozen=True, slots=True, repr=False)
class RRF(Fusion):
    """Reciprocal rank fusion: uses only the order of each leg, no scores.

    Args:
        k: Smoothing constant, in ranks; larger values reduce the lead of the top ranks. The paper
            uses 60.
        weights: By leg name, or in leg order. None takes the weights of the legs.
        min_success: Minimum number of legs that must answer, else the query fails. None takes the
            setting of the legs, or else 1.

    Source:
        `llama_retrieval_ext.formulas.rrf`.

    Examples:
        >>> from llama_index.core.schema import NodeWithScore, TextNode
        >>> a, b = (NodeWithScore(node=TextNode(id_=id_), score=1.0) for id_ in "ab")
        >>> [(hit.node_id, hit.score) for hit in RRF(k=1).fuse({"x": [a, b], "y": [b]})]
        [('b', 0.8333333333333333), ('a', 0.5)]

    """

    k: float = 60.0
    weights: Weights = None
    min_success: int | None = None

    def __post_init__(self) -> None:
        Fusion.__post_init__(self)
        reciprocal_rank_shares([], k=self.k)  # checks k

    def shares(self, legs: Sequence[LegRanking]) -> Sequence[Mapping[str, float]]:
        """Return weight divided by ``k`` plus rank."""
        rankings = [list(leg.hits) for leg in legs]
        return reciprocal_rank_shares(rankings, k=self.k, weights=weights_of(legs))


@dataclass(frozen=True, slots=True, repr=False)
class WeightedSum(Fusion):
    """Convex combination: each leg's scores on a common scale, times its share of the weights.

    Args:
        weights: By leg name, or in leg order. None takes the weights of the legs. Only their
            proportions matter.
        normalise: The common scale, or a scale by leg name. The default, min-max of each ranking,
            is the usual one; it gives the last hit of every leg 0.
        unscored: Treatment of hits without a score.
        min_success: Minimum number of legs that must answer, else the query fails. None takes the
            setting of the legs, or else 1.

    Weights are normalised over the legs that answered, so a failed leg does not lower all scores.

    Raises:
        ConfigurationError: A scale is not a `Normalisation`. During a query: there are scales by
            name, and none for a leg.

    Source:
        `llama_retrieval_ext.formulas.weighted_sum`.

    Examples:
        >>> from llama_index.core.schema import NodeWithScore, TextNode
        >>> nodes = TextNode(id_="a"), TextNode(id_="b")
        >>> cosine = [NodeWithScore(node=n, score=s) for n, s in zip(nodes, (0.9, 0.1))]
        >>> bm25 = [NodeWithScore(node=n, score=s) for n, s in zip(nodes[::-1], (7.0, 3.0))]
        >>> fusion = WeightedSum(weights={"cosine": 3, "bm25": 1})
        >>> [(hit.node_id, hit.score) for hit in fusion.fuse({"cosine": cosine, "bm25": bm25})]
        [('a', 0.75), ('b', 0.25)]

    """

    weights: Weights = None
    normalise: Normalisation | Mapping[str, Normalisation] = Normalisation.MIN_MAX
    unscored: Unscored = Unscored.REFUSE
    min_success: int | None = None

    def __post_init__(self) -> None:
        Fusion.__post_init__(self)
        of_type(self.unscored, Unscored, "unscored")
        by_leg = self.normalise if isinstance(self.normalise, Mapping) else {"": self.normalise}
        for leg, scale in by_leg.items():
            of_type(scale, Normalisation, f"normalise of {leg!r}" if leg else "normalise")

    def shares(self, legs: Sequence[LegRanking]) -> Sequence[Mapping[str, float]]:
        """Return the relative weight times the normalised score."""
        scores = [leg.scaled(self.scale_of(leg.name), self.unscored) for leg in legs]
        return weighted_sum_shares(scores, weights=weights_of(legs))

    def scale_of(self, leg: str) -> Normalisation:
        """Return the scale of a leg's scores.

        Raises:
            ConfigurationError: There are scales for other legs, and none for this one.
        """
        if isinstance(self.normalise, Normalisation):
            return self.normalise
        if leg not in self.normalise:
            raise ConfigurationError(
                f"normalise has scales for {', '.join(map(repr, self.normalise))}, and none for "
                f"the leg {leg!r}; give each leg one, or one for all"
            )
        return self.normalise[leg]


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

    A single outlier has less effect than with min-max, and the last hit of a leg keeps a score.
    Values are not clipped to ``[0, 1]``: the best of many keyword hits is usually more than three
    deviations above the mean, and its lead counts. LlamaIndex's formula has n instead of n - 1,
    and 1 for equal scores: ``QueryFusionRetriever(mode="dist_based_score")``, or ``normalise=``
    with ``Normalisation.DISTRIBUTION_BASED_LLAMA_INDEX``.

    Examples:
        >>> DistributionBased().normalise
        Normalisation.DISTRIBUTION_BASED_UNCUT

    """

    normalise: Normalisation = Normalisation.DISTRIBUTION_BASED_UNCUT


@dataclass(frozen=True, slots=True, repr=False)
class Borda(Fusion):
    """Borda count: each leg gives points by rank; hits it did not rank share the remaining points.

    Args:
        weights: By leg name, or in leg order. None takes the weights of the legs.
        min_success: Minimum number of legs that must answer, else the query fails. None takes the
            setting of the legs, or else 1.

    Source:
        `llama_retrieval_ext.formulas.borda`.
    """

    weights: Weights = None
    min_success: int | None = None

    def shares(self, legs: Sequence[LegRanking]) -> Sequence[Mapping[str, float]]:
        """Return weight times points."""
        return borda_shares([list(leg.hits) for leg in legs], weights=weights_of(legs))


@dataclass(frozen=True, slots=True, repr=False)
class Consensus(Fusion):
    """Another fusion, restricted to hits that enough legs found.

    A failed leg finds nothing: if one of two legs fails, ``at_least=2`` gives an empty, degraded
    answer, and ``min_success=2`` raises an error.

    Args:
        at_least: Minimum number of legs that must find a hit, at least 1.
        fusion: Ranks the remaining hits.
        min_success: Minimum number of legs that must answer, else the query fails. None takes the
            setting of the inner fusion.

    Raises:
        ConfigurationError: ``at_least`` is below 1.
    """

    at_least: int
    fusion: Fusion = field(default_factory=RRF)
    min_success: int | None = None
    weights: Weights = field(init=False)  # those of the inner fusion

    def __post_init__(self) -> None:
        in_at_least([], at_least=self.at_least)  # checks it
        of_type(self.fusion, Fusion, "fusion")
        object.__setattr__(self, "weights", self.fusion.weights)
        if self.min_success is None:
            object.__setattr__(self, "min_success", self.fusion.min_success)
        Fusion.__post_init__(self)

    def shares(self, legs: Sequence[LegRanking]) -> Sequence[Mapping[str, float]]:
        """Return the shares of the inner fusion, for hits with consensus."""
        agreed = in_at_least([list(leg.hits) for leg in legs], at_least=self.at_least)
        return [
            {node_id: share for node_id, share in shares.items() if node_id in agreed}
            for shares in self.fusion.shares(legs)
        ]

    def combine(self, shares: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """Return the combination by the inner fusion."""
        return self.fusion.combine(shares)
