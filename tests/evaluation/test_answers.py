"""Answers of an experiment: kept, shared between retrievers, and what they cost."""

from pathlib import Path

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import (
    RRF,
    BM25Retriever,
    Leg,
    Query,
    Retriever,
    Rewrite,
    VectorRetriever,
    branches,
)
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation import Experiment, Judgements, compare
from llama_retrieval_ext.evaluation.answers import Cost
from llama_retrieval_ext.execution.plan import Plan, finished
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers import MultiQueryRetriever
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, ScriptedLLM
from tests.evaluation.conftest import JUDGED, QUERIES, Shifted
from tests.patience import unless_stalled


@pytest.mark.slow
def test_a_shared_leg_runs_once_and_its_time_counts_for_each_retriever() -> None:
    shared = Shifted(1)
    retrievers = {
        "a": branches(x=shared, y=Shifted(2)) >> RRF(),
        "b": branches(x=shared, y=FakeRetriever([("n1", 1.0)])) >> RRF(),
        "alone": shared,
    }
    found = Experiment(retrievers, JUDGED, measures=["RR"]).run(progress=False, warm_up=False)
    assert shared.calls == list(QUERIES.values())
    times = found.per_query.pivot_table(index="query_id", columns="retriever", values="ms")
    assert (times["alone"] > 0).all()


class InCountry(Rewrite):
    """Puts a value into the context of the query."""

    def __init__(self, country: str) -> None:
        self.country = country

    def rewrite(self, query: Query) -> Query:
        return query.but(context={"country": self.country})


class ByCountry(Retriever):
    """Finds what the context names."""

    def plan(self, query: Query) -> Plan[list[Hit]]:
        return finished([Hit(node=TextNode(id_=str(query.context["country"])), score=1.0)])


def test_a_shared_leg_runs_again_for_a_query_in_another_context() -> None:
    shared = ByCountry(top_k=3)
    retrievers = {"cn": InCountry("cn") >> shared, "de": InCountry("de") >> shared}
    comparison = compare(retrievers, ["annual leave"])
    assert comparison.differences["overlap"].tolist() == [0.0]


def test_calls_of_models_are_counted_for_each_retriever_that_needs_them() -> None:
    model = FakeEmbedding()
    with EmbeddedVectorStore(":memory:") as store:
        store.add([TextNode(id_="n1", text="leave", embedding=model.get_text_embedding("leave"))])
        vector = VectorRetriever(store, embed_model=model)
        retrievers = {
            "vector": vector,
            "fused": branches(vector=vector, other=FakeRetriever([("n2", 1.0)])) >> RRF(),
            "other": FakeRetriever([("n2", 1.0)]),
        }
        found = Experiment(retrievers, JUDGED.only(["q1"])).run(progress=False)
    assert found.warm_up == Cost(embeddings=1)  # what it reuses, it does not call
    results = found.results
    assert results["embeddings"].tolist() == [1.0, 1.0, 0.0]
    assert results["llm_calls"].tolist() == [0.0, 0.0, 0.0]


def test_calls_of_a_ranking_that_fails_are_counted() -> None:
    down = FakeRetriever([], error=ConnectionError("down"))
    wordings = MultiQueryRetriever(down, ScriptedLLM(["days off"]), num_queries=1)
    fused = branches(wordings, other=FakeRetriever([("n2", 1.0)])) >> RRF()
    found = Experiment([fused], JUDGED.only(["q1"])).run(progress=False, warm_up=False)
    assert found.results[["llm_calls", "degraded", "failed"]].iloc[0].tolist() == [1, 1, 0]


@unless_stalled
def test_calls_of_a_ranking_that_is_late_are_counted() -> None:
    model = FakeEmbedding(delay_s=0.2)
    with EmbeddedVectorStore(":memory:") as store:
        store.add([TextNode(id_="n1", text="leave", embedding=model.get_text_embedding("leave"))])
        late = Leg("late", VectorRetriever(store, embed_model=model), timeout_s=0.05)
        fused = branches(late, other=FakeRetriever([("n2", 1.0)])) >> RRF()
        found = Experiment([fused], JUDGED.only(["q1"])).run(progress=False, warm_up=False)
    assert found.results[["embeddings", "degraded", "failed"]].iloc[0].tolist() == [1, 1, 0]


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(tmp_path: Path) -> None:
    killed = Shifted(1, fails_at=9)
    with pytest.raises(KeyboardInterrupt):
        Experiment({"one": killed}, JUDGED, folder=tmp_path).run(progress=False, warm_up=False)
    with (tmp_path / "answers.jsonl").open("a") as file:
        file.write('{"retriever": "one", "query_id": "q9", "hi')  # as if killed while it wrote
    again = Shifted(1)
    found = Experiment({"one": again}, JUDGED, folder=tmp_path).run(progress=False, warm_up=False)
    assert again.calls == [text for text in QUERIES.values() if text not in killed.calls[:9]]
    whole = Experiment({"one": Shifted(1)}, JUDGED).run(progress=False)
    assert found.rankings.equals(whole.rankings)
    # A retriever that is added later is the only one that runs; another under the name is refused.
    again.calls.clear()
    Experiment({"one": again, "two": Shifted(3)}, JUDGED, folder=tmp_path).run(progress=False)
    assert again.calls == []
    with pytest.raises(ConfigurationError, match="another retriever 'one'"):
        Experiment({"one": BM25Retriever([TextNode(text="a")])}, JUDGED, folder=tmp_path)


@pytest.mark.parametrize("question", ["annual\u2028leave\x85", "annual \ud800"])
def test_an_answer_to_any_question_is_read_again(question: str, tmp_path: Path) -> None:
    judged = Judgements({"q": question}, {"q": {"a": 1}})
    for hits in ([("a", 1.0)], []):  # the second retriever is not called
        experiment = Experiment([FakeRetriever(hits)], judged, measures=["RR"], folder=tmp_path)
        assert experiment.run(progress=False).results["RR"].tolist() == [1.0]


@pytest.mark.slow
def test_a_question_that_fails_counts_as_unanswered_and_is_retried_in_the_next_run(
    tmp_path: Path,
) -> None:
    retrievers = {"down": FakeRetriever(error=ConnectionError("down")), "up": Shifted(1)}
    experiment = Experiment(retrievers, JUDGED, measures=["RR"], folder=tmp_path)
    results = experiment.run(progress=False).results
    assert results["RR"].tolist() == [0.0, 1.0]
    assert results["failed"].tolist() == [len(QUERIES), 0]
    assert experiment.per_query["error"][0] == "ConnectionError: down"
    mended = {"down": FakeRetriever([("n0", 1.0)]), "up": Shifted(1)}
    results = (
        Experiment(mended, JUDGED, measures=["RR"], folder=tmp_path).run(progress=False).results
    )
    assert results["failed"].tolist() == [0, 0]
