"""Experiments: what is measured, and with which arguments."""

import ir_measures
import pytest

from llama_retrieval_ext import RRF, branches
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation import Experiment
from llama_retrieval_ext.evaluation.answers import Cost
from llama_retrieval_ext.retrievers import MultiQueryRetriever
from llama_retrieval_ext.testing import FakeRetriever, ScriptedLLM
from tests.evaluation.conftest import JUDGED, QUERIES, RELEVANT, Shifted


@pytest.mark.slow
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


def test_a_query_that_does_not_count_loads_the_models_first() -> None:
    retriever = Shifted(1)
    found = Experiment([retriever], JUDGED, measures=["RR"]).run(progress=False)
    assert retriever.calls == ["warm up", *QUERIES.values()]
    assert found.per_query["question"].tolist() == list(QUERIES.values())
    found.run(progress=False)
    assert len(retriever.calls) == 1 + len(QUERIES)


def test_calls_of_models_before_the_first_question_are_counted_apart() -> None:
    llm = ScriptedLLM(lambda _: "days off")
    retriever = MultiQueryRetriever(FakeRetriever([("n1", 1.0)]), llm, num_queries=1)
    experiment = Experiment([retriever], JUDGED, measures=["RR"]).run(progress=False)
    assert experiment.warm_up == Cost(llm_calls=1)
    assert experiment.results["llm_calls"].tolist() == [1.0]
    assert len(llm.prompts) == 1 + len(QUERIES)


@pytest.mark.slow
def test_a_printed_experiment_is_the_table_of_its_results() -> None:
    experiment = Experiment({"one": Shifted(1), "two": Shifted(0)}, JUDGED, measures=["RR"])
    assert str(experiment) == repr(experiment)
    header, *rows = str(experiment.run(progress=False)).splitlines()
    assert header.split() == ["retriever", "RR", "p50", "p95"]
    assert [row.split()[0] for row in rows[:2]] == ["one", "two"]
    assert "questions (labels)" in rows[2]
