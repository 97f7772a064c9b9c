"""Comparisons without judgements, and the marks that become judgements."""

from pathlib import Path

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation import Experiment, compare
from llama_retrieval_ext.testing import FakeRetriever
from tests.evaluation.conftest import QUESTIONS, Shifted


def test_the_most_different_question_comes_first() -> None:
    same = FakeRetriever([("a", 1.0), ("b", 0.5)])
    comparison = compare({"same": same, "shifted": Shifted(1), "again": Shifted(1)}, QUESTIONS)
    table = comparison.differences
    assert table["overlap"].tolist() == pytest.approx([1 / 3] * 3)
    assert table["only in same"].tolist() == ["a, b"] * 3
    assert table["only in shifted"].tolist() == [""] * 3
    assert not table["same_first"].any()


def test_marks_are_kept_and_an_experiment_takes_them(tmp_path: Path) -> None:
    file = tmp_path / "marks.jsonl"
    retrievers = {"one": Shifted(1), "two": Shifted(2)}
    comparison = compare(retrievers, QUESTIONS, top_k=5, marks=file)
    comparison.mark("question 1", "n1")
    comparison.mark("question 1", "n0", grade=0)
    again = compare(retrievers, QUESTIONS, top_k=5, marks=file)
    assert again.marks == {"question 1": {"n1": 1, "n0": 0}}
    again.mark(0, "n0")
    with pytest.raises(ConfigurationError, match="several begin so"):
        again.mark(0, "n")
    found = Experiment(retrievers, file, measures=["RR"]).run(progress=False)
    assert found.results["RR"].tolist() == [1.0, 0.5]


def test_only_nodes_found_for_questions_of_the_comparison_can_be_marked() -> None:
    comparison = compare([Shifted(1), Shifted(2)], QUESTIONS)
    for question, node_id in ((0, "n99"), (7, "n1"), ("other", "n1")):
        with pytest.raises(ConfigurationError, match="question"):
            comparison.mark(question, node_id)
    with pytest.raises(ConfigurationError, match="two retrievers"):
        compare([Shifted(1)], QUESTIONS)
