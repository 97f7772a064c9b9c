"""`ScoreKind`: what a reranker's scores mean."""

import math

import pytest

from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.reordering import ScoreKind


def test_a_logit_becomes_the_probability_it_stands_for() -> None:
    assert ScoreKind.LOGIT.calibrated(0.0) == 0.5
    assert ScoreKind.LOGIT.calibrated(2.0) == pytest.approx(1 / (1 + math.exp(-2.0)))
    assert ScoreKind.LOGIT.calibrated(-2.0) == pytest.approx(1 / (1 + math.exp(2.0)))


@pytest.mark.parametrize("logit", [1e308, -1e308])
def test_extreme_logits_do_not_overflow(logit: float) -> None:
    assert ScoreKind.LOGIT.calibrated(logit) in {0.0, 1.0}


def test_a_score_does_not_depend_on_the_others_of_its_result() -> None:
    weak = [ScoreKind.LOGIT.calibrated(score) for score in (-4.0, -5.0)]
    assert max(weak) < 0.02  # min-max would have made it 1


def test_rounding_is_forgiven_to_probabilities_and_nothing_else_is() -> None:
    assert ScoreKind.PROBABILITY.calibrated(1.0000001) == 1.0
    assert ScoreKind.PROBABILITY.calibrated(-1e-9) == 0.0
    with pytest.raises(ScoreError, match="LOGIT"):
        ScoreKind.PROBABILITY.calibrated(3.2)


@pytest.mark.parametrize("kind", list(ScoreKind))
@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_refused(kind: ScoreKind, score: float) -> None:
    with pytest.raises(ScoreError, match="finite"):
        kind.calibrated(score)
