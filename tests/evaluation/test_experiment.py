"""Experiments: what is measured, how significant it is, and how it is shown."""

import ir_measures
import pytest

from llama_retrieval_ext import RRF, branches
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation.experiment import Experiment
from llama_retrieval_ext.evaluation.judgements import KNOWN_ITEMS, Judgements, Level
from tests.display.conftest import printed
from tests.evaluation.conftest import JUDGED, QUERIES, RELEVANT, Shifted


def test_values_are_those_of_ir_measures() -> None:
    names = ["nDCG@10", "R@5", "RR", "AP"]
    one, other = Shifted(2), Shifted(7)
    legs = branches(one=one, other=other) >> RRF()
    experiment = Experiment({"fused": legs, "one": one}, JUDGED, measures=names).run(progress=False)
    run = {
        id_: {hit.node.node_id: hit.score or 0.0 for hit in legs.retrieve(text)}
        for id_, text in QUERIES.items()
    }
    expected = ir_measures.calc_aggregate(map(ir_measures.parse_measure, names), RELEVANT, run)
    row = experiment.results.iloc[0]
    for measure, value in expected.items():
        assert row[str(measure)] == pytest.approx(value, abs=1e-6)


@pytest.mark.reference
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of numba, while it compiles ranx's measure
def test_values_are_those_of_ranx() -> None:
    ranx = pytest.importorskip("ranx")
    retriever = branches(one=Shifted(2), other=Shifted(7)) >> RRF()
    experiment = Experiment([retriever], JUDGED)
    row = experiment.run(progress=False).results.iloc[0]
    run = {
        id_: {h.node.node_id: h.score or 0.0 for h in retriever.retrieve(text)}
        for id_, text in QUERIES.items()
    }
    qrels = ranx.Qrels(RELEVANT)
    assert row["nDCG@10"] == pytest.approx(ranx.evaluate(qrels, ranx.Run(run), "ndcg@10"), abs=1e-6)


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


def test_top_k_limits_the_hits_of_each_retriever() -> None:
    found = Experiment([Shifted(5)], JUDGED, measures=["RR"], top_k=3).run(progress=False)
    assert found.results["RR"][0] == 0.0
    assert found.rankings.groupby("query_id").size().unique().tolist() == [3]


def test_wrong_arguments_of_an_experiment_are_refused_before_it_runs() -> None:
    for arguments, what in (
        ({"measures": ["nope@x"]}, "measures are those of ir-measures"),
        ({"measures": "nDCG@10"}, "a list"),
        ({"baseline": "x"}, "no retriever of the experiment"),
    ):
        with pytest.raises(ConfigurationError, match=what):
            Experiment({"a": Shifted(1)}, JUDGED, **arguments)
    with pytest.raises(ConfigurationError, match="call run"):
        _ = Experiment({"a": Shifted(1)}, JUDGED).results
