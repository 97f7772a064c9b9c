"""Fusion by the weighted sum of normalised scores."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_retrieval_ext.arguments import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.weighted_sum import weighted_sum
from llama_retrieval_ext.stages.algebra.fusion import (
    Fusion,
    LegRanking,
    Unscored,
    Weights,
)
from llama_retrieval_ext.stages.fusions.normalisation import Normalisation


@dataclass(frozen=True, slots=True, repr=False)
class WeightedSum(Fusion):
    """Convex combination: each leg's scores on a common scale, times its share of the weights.

    Args:
        weights: By leg name, or in the order of the legs; None for the weights of the legs. Only
            their proportions matter.
        normalise: The common scale, or one for each leg by its name. The default, min-max of each
            ranking, is the usual one; it gives the last hit of every leg 0.
        unscored: What happens to a hit without a score.
        min_success: How many legs must answer, or the query fails; None for what the legs say, or
            else 1.

    The weights of the legs that answered count as the whole: a leg that failed does not lower
    every score.

    Raises:
        ConfigurationError: A scale is none; while a query is answered: there are scales by name,
            and none for a leg.

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

    def shares(self, legs: Sequence[LegRanking]) -> list[Mapping[str, float]]:
        """Weight as a part of all weights, times the normalised score."""
        total = math.fsum(leg.weight for leg in legs)
        scores = [leg.scaled(self.scale_of(leg.name), self.unscored) for leg in legs]
        return [
            weighted_sum([found], weights=[leg.weight], total=total)
            for leg, found in zip(legs, scores, strict=True)
        ]

    def scale_of(self, leg: str) -> Normalisation:
        """The scale of a leg's scores.

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
