"""Experiments: what is measured, asked once, kept, counted and shown."""

import io
from pathlib import Path

import ir_measures
import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from rich.console import Console

from llama_retrieval_ext import RRF, BM25Retriever, VectorRetriever, branches
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation.experiment import Experiment
from llama_retrieval_ext.evaluation.judgements import KNOWN_ITEMS, Judgements, Level
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever

QUERIES = {f"q{n}": f"question {n}" for n in range(20)}
RELEVANT = {id_: {f"n{number}": 1 + number % 2} for number, id_ in enumerate(QUERIES)}
JUDGED = Judgements(QUERIES, RELEVANT, Level.NODE)


class Shifted(BaseRetriever):
    """Gives node n..n+9 for question n, the right one at a rank of its own."""

    def __init__(self, rank: int, *, fails_at: int | None = None) -> None:
        super().__init__()
        self.rank, self.fails_at, self.calls = rank, fails_at, list[str]()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle.query_str)
        number = int(query_bundle.query_str.split()[1])
        if number == self.fails_at:
            raise KeyboardInterrupt
        ids = [f"n{number - self.rank + place}" for place in range(1, 11)]
        return [NodeWithScore(node=TextNode(id_=id_), score=-float(p)) for p, id_ in enumerate(ids)]


def printed(value: object) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(value)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


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


def test_a_leg_of_several_retrievers_is_asked_once_and_charged_to_each() -> None:
    shared = Shifted(1)
    retrievers = {
        "a": branches(x=shared, y=Shifted(2)) >> RRF(),
        "b": branches(x=shared, y=FakeRetriever([("n1", 1.0)])) >> RRF(),
        "alone": shared,
    }
    found = Experiment(retrievers, JUDGED, measures=["RR"]).run(progress=False)
    assert shared.calls == list(QUERIES.values())
    times = found.per_query.pivot_table(index="query_id", columns="retriever", values="ms")
    assert (times["alone"] > 0).all()


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
        results = Experiment(retrievers, JUDGED.only(["q1"])).run(progress=False).results
    assert results["embeddings"].tolist() == [1.0, 1.0, 0.0]
    assert results["llm_calls"].tolist() == [0.0, 0.0, 0.0]


def test_a_run_that_was_killed_goes_on(tmp_path: Path) -> None:
    killed = Shifted(1, fails_at=9)
    with pytest.raises(KeyboardInterrupt):
        Experiment({"one": killed}, JUDGED, folder=tmp_path).run(progress=False)
    with (tmp_path / "answers.jsonl").open("a") as file:
        file.write('{"retriever": "one", "query_id": "q9", "hi')  # as if killed while it wrote
    again = Shifted(1)
    found = Experiment({"one": again}, JUDGED, folder=tmp_path).run(progress=False)
    assert again.calls == [text for text in QUERIES.values() if text not in killed.calls[:9]]
    whole = Experiment({"one": Shifted(1)}, JUDGED).run(progress=False)
    assert found.rankings.equals(whole.rankings)
    # A retriever that is added later is the only one asked; another one under the name is refused.
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


def test_a_question_that_fails_counts_as_unanswered_and_is_asked_again(tmp_path: Path) -> None:
    retrievers = {"down": FakeRetriever(error=ConnectionError("down")), "up": Shifted(1)}
    experiment = Experiment(retrievers, JUDGED, measures=["RR"], folder=tmp_path)
    results = experiment.run(progress=False).results
    assert results["RR"].tolist() == [0.0, 1.0]
    assert results["failed"].tolist() == [20, 0]
    assert experiment.per_query["error"][0] == "ConnectionError: down"
    mended = {"down": FakeRetriever([("n0", 1.0)]), "up": Shifted(1)}
    results = (
        Experiment(mended, JUDGED, measures=["RR"], folder=tmp_path).run(progress=False).results
    )
    assert results["failed"].tolist() == [0, 0]


def test_what_is_significant_is_marked_in_text_and_html() -> None:
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


def test_depth_is_what_each_retriever_is_asked_for() -> None:
    found = Experiment([Shifted(5)], JUDGED, measures=["RR"], top_k=3).run(progress=False)
    assert found.results["RR"][0] == 0.0
    assert found.rankings.groupby("query_id").size().unique().tolist() == [3]


def test_mistakes_are_said_at_once() -> None:
    for arguments, what in (
        ({"measures": ["nope@x"]}, "measures are those of ir-measures"),
        ({"measures": "nDCG@10"}, "a list"),
        ({"baseline": "x"}, "no retriever of the experiment"),
    ):
        with pytest.raises(ConfigurationError, match=what):
            Experiment({"a": Shifted(1)}, JUDGED, **arguments)
    with pytest.raises(ConfigurationError, match="call run"):
        _ = Experiment({"a": Shifted(1)}, JUDGED).results
