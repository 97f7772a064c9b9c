import math
import sys

import pytest

from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.formulas.scores import check_scores


@pytest.mark.parametrize(
    "score", [None, math.nan, math.inf, -math.inf, sys.float_info.max, -sys.float_info.max]
)
def test_a_score_that_is_none_is_refused_by_the_name_of_its_id(score: float | None) -> None:
    with pytest.raises(ScoreError, match="the score of 'n2' is"):
        check_scores({"n1": 0.5, "n2": score})


@pytest.mark.parametrize("score", [0.0, -0.0, 5e-324, -17.5, 3.4e38, 1e100, -1e100, 1])
def test_finite_scores_of_any_sign_and_size_pass(score: float) -> None:
    scores = {"n1": score}
    check_scores(scores)
    assert scores == {"n1": score}
