"""What Milvus has of our fusions, and how it is told to fuse."""

from collections.abc import Callable
from typing import Final

from pymilvus import RRFRanker, WeightedRanker
from pymilvus.client.abstract import BaseRanker

from llama_retrieval_ext.stages.fusions.normalisation import Normalisation
from llama_retrieval_ext.stages.fusions.rrf import RRF
from llama_retrieval_ext.stages.fusions.weighted_sum import WeightedSum
from llama_retrieval_ext.stores.native_fusion import FusedSearch, NativeFusion

BY_RANK: Final = NativeFusion(kind=RRF, least_k=1, most_k=16_383, equal_weights=True)
BY_SUM: Final = NativeFusion(kind=WeightedSum, scales=(Normalisation.NONE, Normalisation.NONE))


def fusions_of(kind: str, *, lite: bool) -> tuple[NativeFusion, ...]:
    """The fusions there are for scores of a kind.

    Args:
        kind: What ``ScoreRange.kind`` says of vector search. Distances are rescaled before they
            are added.
        lite: Whether it is Milvus Lite. Servers before some 2.5 rescale all scores whatever they
            are told, and none could be tried; so none is trusted with sums.
    """
    return (BY_RANK, BY_SUM) if lite and kind in {"cosine", "dot"} else (BY_RANK,)


def ranker_of(how: FusedSearch) -> tuple[BaseRanker, Callable[[float], float]]:
    """The engine's fusion, and what turns its score into ours."""
    rrf = how.by_rank
    if rrf is None:
        return WeightedRanker(*how.proportions, norm_score=False), float
    weight = how.weights[0]
    return RRFRanker(int(rrf.k)), lambda score: weight * score
