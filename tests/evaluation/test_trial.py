"""Trials of settings on saved rankings: what labels carry is chosen, all else stays."""

from pathlib import Path

import pytest

from llama_retrieval_ext import RRF, WeightedSum, branches
from llama_retrieval_ext.errors import ExecutionError
from llama_retrieval_ext.evaluation.judgements import KNOWN_ITEMS, Judgements, Level
from llama_retrieval_ext.testing.fakes import FakeRetriever
from tests.evaluation.conftest import JUDGED, QUERIES, Noisy, tuned

pytestmark = pytest.mark.slow


def test_a_gain_on_one_question_of_many_changes_no_setting() -> None:
    one, other = Noisy("a", lambda n: True), Noisy("a", lambda n: n > 0)
    pipeline = branches(one=one, other=other) >> WeightedSum({"one": 0.2, "other": 0.8})
    result = tuned(pipeline)
    assert result.retriever is pipeline
    assert not result.is_changed
    assert result.verdict.startswith("Nothing changed. On 24 questions (labels)")
    (choice,) = result.choices
    assert choice.why.startswith("Kept: the best other value")


def test_synthetic_questions_are_measured_and_change_no_setting() -> None:
    pipeline = branches(a=Noisy("a", lambda n: True), b=Noisy("b", lambda n: False)) >> RRF()
    items = Judgements(JUDGED.queries, JUDGED.relevant, Level.NODE, KNOWN_ITEMS)
    result = tuned(pipeline, items)
    assert result.retriever is pipeline
    assert "known items share their words" in result.choices[0].why
    assert set(result.table["questions"]) == {"synthetic: known items"}


def test_saved_rankings_are_read_instead_of_retrieved(tmp_path: Path) -> None:
    one, other = Noisy("a", lambda n: n > 3), Noisy("b", lambda n: n < 9)
    pipeline = branches(one=one, other=other) >> WeightedSum()
    first = tuned(pipeline, folder=tmp_path)
    again = tuned(pipeline, folder=tmp_path, measure="RR")
    assert (one.calls, other.calls) == (len(QUERIES), len(QUERIES))
    assert again.measure == "RR"
    assert first.table.shape[0] == again.table.shape[0]


def test_a_leg_that_fails_is_not_weighed() -> None:
    legs = branches(up=Noisy("up", lambda n: True), down=FakeRetriever(error=OSError("gone")))
    with pytest.raises(ExecutionError, match=r"leg 'down' failed for 24 of 24 questions.*gone"):
        tuned(legs >> RRF())
