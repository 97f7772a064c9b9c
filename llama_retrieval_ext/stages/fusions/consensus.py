"""Fusion of what several legs agree on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llama_retrieval_ext.arguments import of_type
from llama_retrieval_ext.formulas.consensus import in_at_least
from llama_retrieval_ext.stages.algebra.fusion import Fusion, LegRanking, Weights
from llama_retrieval_ext.stages.fusions.rrf import RRF


@dataclass(frozen=True, slots=True, repr=False)
class Consensus(Fusion):
    """Another fusion, of the hits alone that enough legs found.

    A leg that failed agrees with nothing: with two legs, of which one failed, ``at_least=2`` gives
    an empty, degraded answer; ``min_success=2`` makes it an error.

    Args:
        at_least: How many legs must have found a hit, at least 1.
        fusion: How the hits that remain are ranked.
        min_success: How many legs must answer, or the query fails; None for what the fusion inside
            says.

    Raises:
        ConfigurationError: ``at_least`` is below 1.
    """

    at_least: int
    fusion: Fusion = field(default_factory=RRF)
    min_success: int | None = None
    weights: Weights = field(init=False)  # those of the fusion inside

    def __post_init__(self) -> None:
        in_at_least([], at_least=self.at_least)  # checks it
        of_type(self.fusion, Fusion, "fusion")
        object.__setattr__(self, "weights", self.fusion.weights)
        if self.min_success is None:
            object.__setattr__(self, "min_success", self.fusion.min_success)
        Fusion.__post_init__(self)

    def shares(self, legs: Sequence[LegRanking]) -> list[Mapping[str, float]]:
        """The shares of the fusion inside, for hits with consensus."""
        agreed = in_at_least([list(leg.hits) for leg in legs], at_least=self.at_least)
        return [
            {node_id: share for node_id, share in shares.items() if node_id in agreed}
            for shares in self.fusion.shares(legs)
        ]

    def combine(self, shares: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """As the fusion inside."""
        return self.fusion.combine(shares)
