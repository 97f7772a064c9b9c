"""Tables of experiments, comparisons and tunings: HTML and rich console."""

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import Hit, WeightedSum, branches
from llama_retrieval_ext.evaluation import Comparison, Experiment, compare
from llama_retrieval_ext.evaluation.judgements import KNOWN_ITEMS, Judgements, Level
from tests.display.conftest import printed
from tests.evaluation.conftest import QUERIES, QUESTIONS, RELEVANT, Noisy, Shifted, tuned


@pytest.mark.slow
def test_significant_differences_are_marked_in_text_and_html() -> None:
    judged = Judgements(QUERIES, RELEVANT, Level.NODE, KNOWN_ITEMS)
    retrievers = {"<first>": Shifted(2), "better": Shifted(1), "same": Shifted(2)}
    experiment = Experiment(retrievers, judged, measures=["RR"]).run(progress=False)
    rows = experiment.significance.set_index("retriever")
    assert rows.loc["better", "is_significant"]
    assert rows.loc["better", "difference"] == pytest.approx(0.5)
    assert rows.loc["same", "p_holm"] == 1.0
    for table in (experiment.results, experiment.per_query, experiment.significance):
        assert set(table["questions"]) == {"synthetic: known items"}
    lines = printed(experiment)
    assert "1.0000*↑" in lines
    assert "synthetic: known items" in lines
    html = experiment._repr_html_()
    assert "<b>1.0000*↑</b>" in html
    assert "&lt;first&gt;" in html


def test_text_and_html_show_marks_and_nodes_that_one_retriever_alone_found() -> None:
    comparison = compare({"<one>": Shifted(1), "two": Shifted(2)}, QUESTIONS[:1], top_k=2)
    comparison.mark(0, "n0")
    html, text = comparison._repr_html_(), printed(comparison)
    for shown in (html, text):
        assert "✓ n0" in shown
        assert "+ n1" in shown
        assert "1 marked" in shown
    assert "<one>" not in html


def test_a_shown_id_can_be_marked_also_if_several_begin_alike() -> None:
    ids = ["leave.md-1", "leave.md-12", "expenses.md-1"]
    hits = [Hit(node=TextNode(id_=id_, metadata={"file_name": "x"}), score=1.0) for id_ in ids]
    comparison = Comparison({"q": {"one": hits[:2], "two": hits[2:]}}, top_k=2)
    text = printed(comparison)
    for shown, id_ in zip(["leave.md-1", "leave.md-12", "expenses"], ids, strict=True):
        assert f"[{shown}]" in text
        comparison.mark("q", shown, grade=1)
        assert id_ in comparison.marks["q"]


@pytest.mark.slow
def test_a_tuning_shows_its_verdict_and_reasons() -> None:
    good, bad = Noisy("good", lambda n: True), Noisy("bad", lambda n: False)
    result = tuned(branches(good=good, bad=bad) >> WeightedSum())
    for shown in (printed(result), result._repr_html_()):
        assert "fusion and weights" in shown
        assert "It gains" in shown
    assert repr(result) == result.verdict
