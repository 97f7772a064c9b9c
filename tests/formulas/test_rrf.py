import math
from collections.abc import Sequence

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.rrf import reciprocal_rank_shares
from llama_retrieval_ext.formulas.scores import sum_of_legs


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], *, k: float = 60, weights: Sequence[float] | None = None
) -> dict[str, float]:
    return sum_of_legs(reciprocal_rank_shares(rankings, k=k, weights=weights))


def test_a_repeated_id_counts_once_and_the_rest_moves_up() -> None:
    assert reciprocal_rank_fusion([["a", "a", "b"]]) == {"a": 1 / 61, "b": 1 / 62}


@pytest.mark.parametrize("k", [-1.0, math.nan, math.inf])
def test_a_k_below_zero_or_not_finite_is_refused(k: float) -> None:
    with pytest.raises(ConfigurationError, match="k must be a finite number of 0 or more"):
        reciprocal_rank_fusion([["a"]], k=k)
