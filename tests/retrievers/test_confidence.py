"""Estimates from the scores of a search whether its best hit answers the question."""

import pytest

from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.confidence import Calibration, signals

NEAR = {"vector": [("a", 0.9), ("b", 0.4)], "keyword": [("a", 9.0), ("b", 1.0)]}
FAR = {"vector": [("a", 0.3), ("b", 0.3)], "keyword": [("b", 1.0), ("a", 1.0)]}


def test_a_calibration_tells_answered_from_unanswered_questions_by_either_leg_or_both() -> None:
    examples = [(NEAR, 2, True), (FAR, 2, False)] * 50
    fitted = Calibration.fitted(examples, nodes=7)
    assert (fitted.questions, fitted.nodes) == (100, 7)
    assert Calibration.from_dict(fitted.to_dict()) == fitted
    for legs in (["vector"], ["keyword"], ["vector", "keyword"]):
        near, far = (
            fitted.estimate(Query("annual leave"), {leg: found[leg] for leg in legs})
            for found in (NEAR, FAR)
        )
        assert 0 <= (far or 0) < 0.5 < (near or 0) <= 1


def test_an_estimate_is_0_without_hits_and_unknown_without_legs() -> None:
    calibration = Calibration({"vector": (8.0, 4.0, -5.0)}, questions=400, nodes=1000)
    assert calibration.estimate(Query("leave"), {"vector": []}) == 0.0
    assert calibration.estimate(Query("leave"), {}) is None


def test_signals_of_both_legs_end_with_the_lead_of_the_best_sum() -> None:
    assert len(signals(NEAR, terms=2)) == 6
    assert signals(NEAR, terms=2)[-1] == pytest.approx(2.0)
    assert signals(FAR, terms=2)[-1] < signals(NEAR, terms=2)[-1]
