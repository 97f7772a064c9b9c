"""`ScoreKind`: what a reranker's scores mean."""

import math
from typing import get_args

import pytest

from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.reordering import ScoreKind, calibrated


def test_a_logit_becomes_the_probability_it_stands_for() -> None:
    assert calibrated(0.0, "logit") == 0.5
    assert calibrated(2.0, "logit") == pytest.approx(1 / (1 + math.exp(-2.0)))
    assert calibrated(-2.0, "logit") == pytest.approx(1 / (1 + math.exp(2.0)))


@pytest.mark.parametrize("logit", [1e308, -1e308])
def test_extreme_logits_do_not_overflow(logit: float) -> None:
    assert calibrated(logit, "logit") in {0.0, 1.0}


def test_a_score_does_not_depend_on_the_others_of_its_result() -> None:
    weak = [calibrated(score, "logit") for score in (-4.0, -5.0)]
    assert max(weak) < 0.02  # min-max would have made it 1


def test_rounding_is_forgiven_to_probabilities_and_nothing_else_is() -> None:
    assert calibrated(1.0000001, "probability") == 1.0
    assert calibrated(-1e-9, "probability") == 0.0
    with pytest.raises(ScoreError, match="logit"):
        calibrated(3.2, "probability")


@pytest.mark.parametrize("kind", get_args(ScoreKind))
@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_refused(kind: ScoreKind, score: float) -> None:
    with pytest.raises(ScoreError, match="finite"):
        calibrated(score, kind)
