"""Fusions: reciprocal ranks, weighted sums, best scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.fusion import (
    best_of_legs,
    comb_max_shares,
    reciprocal_rank_shares,
    weighted_sum_shares,
)
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.parameters import Advice, Range
from llama_retrieval_ext.pipeline.fusion import Fusion, LegRanking, MinSuccess, Unscored, Weights

RankConstant: TypeAlias = Annotated[float, Range(least=0), Advice("60 is the value of the paper")]


@dataclass(frozen=True, slots=True, repr=False)
class Max(Fusion):
    """Best weighted score of any leg: LlamaIndex's SIMPLE.

    It uses raw scores, so all legs need one scale, such as several indexes of one embedding model.

    Args:
        weights: By leg name, or in leg order. None takes the weights of the legs.
        unscored: Treatment of hits without a score: ``"refuse"`` raises an error, ``"leave_out"``
            drops them, ``"zero"`` keeps them at the end of their leg.
        min_success: Minimum number of legs that must answer, else the query fails. None takes the
            setting of the legs, or else 1.

    Source:
        `llama_retrieval_ext.formulas.fusion.comb_max_shares`.
    """

    weights: Weights = None
    unscored: Unscored = "refuse"
    min_success: MinSuccess = None

    def shares(self, legs: Sequence[LegRanking]) -> Sequence[Mapping[str, float]]:
        """Return weight times raw score."""
        scores = [leg.scaled(Normalisation.NONE, self.unscored) for leg in legs]
        return comb_max_shares(scores, weights=[leg.weight for leg in legs])

    def combine(self, shares: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """Return the best share of each id."""
        return best_of_legs(shares)


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
        `llama_retrieval_ext.formulas.fusion.reciprocal_rank_shares`.

    Examples:
        >>> from llama_index.core.schema import NodeWithScore, TextNode
        >>> a, b = (NodeWithScore(node=TextNode(id_=id_), score=1.0) for id_ in "ab")
        >>> [(hit.node_id, hit.score) for hit in RRF(k=1).fuse({"x": [a, b], "y": [b]})]
        [('b', 0.8333333333333333), ('a', 0.5)]

    """

    k: RankConstant = 60.0
    weights: Weights = None
    min_success: MinSuccess = None

    def shares(self, legs: Sequence[LegRanking]) -> Sequence[Mapping[str, float]]:
        """Return weight divided by ``k`` plus rank."""
        rankings = [list(leg.hits) for leg in legs]
        weights = [leg.weight for leg in legs]
        return reciprocal_rank_shares(rankings, k=self.k, weights=weights)


@dataclass(frozen=True, slots=True, repr=False)
class WeightedSum(Fusion):
    """Convex combination: each leg's scores on a common scale, times its share of the weights.

    Args:
        weights: By leg name, or in leg order. None takes the weights of the legs. Only their
            proportions matter.
        normalise: The common scale, or a scale by leg name. The default, min-max of each ranking,
            is the usual one; it gives the last hit of every leg 0 (LlamaIndex's RELATIVE_SCORE).
            ``DISTRIBUTION_BASED``, Qdrant's, places scores between three standard deviations: one
            outlier has less effect, and the last hit of a leg keeps a score.
        unscored: Treatment of hits without a score: ``"refuse"`` raises an error, ``"leave_out"``
            drops them, ``"zero"`` keeps them at the end of their leg.
        min_success: Minimum number of legs that must answer, else the query fails. None takes the
            setting of the legs, or else 1.

    Weights are normalised over the legs that answered, so a failed leg does not lower all scores.

    Raises:
        ConfigurationError: A scale is not a `Normalisation`. During a query: there are scales by
            name, and none for a leg.

    Source:
        `llama_retrieval_ext.formulas.fusion.weighted_sum_shares`.

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
    unscored: Unscored = "refuse"
    min_success: MinSuccess = None

    def shares(self, legs: Sequence[LegRanking]) -> Sequence[Mapping[str, float]]:
        """Return the relative weight times the normalised score."""
        scores = [leg.scaled(self.scale_of(leg.name), self.unscored) for leg in legs]
        return weighted_sum_shares(scores, weights=[leg.weight for leg in legs])

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
