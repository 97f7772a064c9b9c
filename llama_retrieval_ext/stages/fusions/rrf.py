"""Fusion by reciprocal rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_retrieval_ext.formulas.rrf import reciprocal_rank_fusion
from llama_retrieval_ext.stages.algebra.fusion import Fusion, LegRanking, Weights


@dataclass(frozen=True, slots=True, repr=False)
class RRF(Fusion):
    """Reciprocal rank fusion: needs no scores, only the order of each leg.

    Args:
        k: Smoothing constant, in ranks; larger values flatten the lead of the top. 60 is the
            value of the paper.
        weights: By leg name, or in the order of the legs; None for the weights of the legs.
        min_success: How many legs must answer, or the query fails; None for what the legs say, or
            else 1.

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
        reciprocal_rank_fusion([], k=self.k)  # checks k

    def shares(self, legs: Sequence[LegRanking]) -> list[Mapping[str, float]]:
        """Weight over ``k`` plus rank."""
        return [
            reciprocal_rank_fusion([list(leg.hits)], k=self.k, weights=[leg.weight]) for leg in legs
        ]
