"""Tuning: what labels carry is chosen, what they do not carry stays, and nothing is asked twice."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext import (
    MMR,
    RRF,
    BM25Retriever,
    Fusion,
    HybridRetriever,
    QueryFusionRetriever,
    Top,
    WeightedSum,
    branches,
)
from llama_retrieval_ext.errors import ConfigurationError, ExecutionError
from llama_retrieval_ext.evaluation.judgements import KNOWN_ITEMS, Judgements, Level
from llama_retrieval_ext.evaluation.questions import known_item_questions
from llama_retrieval_ext.evaluation.trial import Trial
from llama_retrieval_ext.evaluation.tunable import FusedPipeline, Setting
from llama_retrieval_ext.evaluation.tunable_graph import SeededGraph
from llama_retrieval_ext.evaluation.tuning import Tuning, tune
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from tests.evaluation.test_experiment import Shifted, printed

COUNT = 24
QUERIES = {f"q{n}": f"question {n}" for n in range(COUNT)}
JUDGED = Judgements(QUERIES, {f"q{n}": {f"n{n}": 1} for n in range(COUNT)}, Level.NODE)


class Noisy(BaseRetriever):
    """Has the right node first in some questions, and wrong ones of its own otherwise."""

    def __init__(self, name: str, is_right: Callable[[int], bool]) -> None:
        super().__init__()
        self.name, self.is_right, self.calls = name, is_right, 0

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls += 1
        number = int(query_bundle.query_str.split()[1])
        wrong = [f"{self.name} {number} {place}" for place in range(5)]
        ids = [f"n{number}", *wrong] if self.is_right(number) else [*wrong, f"n{number}"]
        return [
            NodeWithScore(node=TextNode(id_=id_), score=1.0 - place / 10)
            for place, id_ in enumerate(ids)
        ]


def tuned(retriever: BaseRetriever, judged: Judgements = JUDGED, **options: str | Path) -> Tuning:
    return tune(retriever, judged, progress=False, **options)  # type: ignore[arg-type]


def test_a_leg_that_is_wrong_loses_its_weight_and_each_leg_is_asked_once() -> None:
    good, bad = Noisy("good", lambda n: n % 10 > 0), Noisy("bad", lambda n: False)
    pipeline = branches(good=good, bad=bad) >> WeightedSum() >> Top(5)
    result = tuned(pipeline)
    assert (good.calls, bad.calls) == (COUNT, COUNT)
    assert result.is_changed
    assert result.gain is not None
    assert result.gain.is_significant
    assert result.retriever.retrieve("question 1")[0].node_id == "n1"
    assert pipeline.retrieve("question 1")[0].node_id != "n1"
    assert repr(result.retriever).endswith(">> Top(k=5)")
    assert result.best_leg == "good"
    assert "Fusion is not worth it" in result.verdict or "not clear" in result.verdict
    assert all(choice.why for choice in result.choices)


def test_one_question_of_many_carries_nothing() -> None:
    one, other = Noisy("a", lambda n: True), Noisy("a", lambda n: n > 0)
    pipeline = branches(one=one, other=other) >> WeightedSum({"one": 0.2, "other": 0.8})
    result = tuned(pipeline)
    assert result.retriever is pipeline
    assert not result.is_changed
    assert result.verdict.startswith("Nothing changed. On 24 questions (labels)")
    (choice,) = result.choices
    assert choice.why.startswith("Kept: the best other value")


def test_few_labels_change_nothing_and_ask_nothing() -> None:
    good, bad = Noisy("good", lambda n: True), Noisy("bad", lambda n: False)
    pipeline = branches(good=good, bad=bad) >> RRF()
    result = tuned(pipeline, JUDGED.only(list(QUERIES)[:19]))
    assert result.retriever is pipeline
    assert result.verdict.startswith("Nothing changed: 19 labelled questions carry no setting")
    assert "at least 20" in result.verdict
    assert good.calls == 0


def test_known_items_are_measured_and_change_nothing() -> None:
    pipeline = branches(a=Noisy("a", lambda n: True), b=Noisy("b", lambda n: False)) >> RRF()
    items = Judgements(JUDGED.queries, JUDGED.relevant, Level.NODE, KNOWN_ITEMS)
    result = tuned(pipeline, items)
    assert result.retriever is pipeline
    assert "known items share their words" in result.choices[0].why
    assert set(result.table["questions"]) == {"synthetic: known items"}


def test_progress_is_shown_of_answers_and_of_settings(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = Noisy("a", lambda n: True), Noisy("b", lambda n: False)
    tune(branches(one=one, other=other) >> RRF(), JUDGED)
    shown = capsys.readouterr().err
    assert "answer/s]" in shown
    assert "setting/s]" in shown


def test_rankings_that_were_saved_are_not_asked_for_again(tmp_path: Path) -> None:
    one, other = Noisy("a", lambda n: n > 3), Noisy("b", lambda n: n < 9)
    pipeline = branches(one=one, other=other) >> WeightedSum()
    first = tuned(pipeline, folder=tmp_path)
    again = tuned(pipeline, folder=tmp_path, measure="RR")
    assert (one.calls, other.calls) == (COUNT, COUNT)
    assert again.measure == "RR"
    assert first.table.shape[0] == again.table.shape[0]


@pytest.fixture(scope="module")
def hybrid() -> Iterator[HybridRetriever]:
    model = FakeEmbedding()
    with EmbeddedVectorStore(":memory:") as store:
        store.add(list(sample_nodes(model)))
        yield HybridRetriever(store, embed_model=model, candidates=5, top_k=4)


def saved_rankings(trial: Trial, query_id: str) -> dict[str, list[tuple[str, float | None]]]:
    return {
        name: [(hit.node_id, hit.score) for hit in own[query_id].hits]
        for name, own in trial.answers.items()
    }


def pipelines(hybrid: HybridRetriever) -> dict[str, Retriever]:
    keyword, other = BM25Retriever(sample_nodes(), top_k=5), BM25Retriever(sample_nodes()[:6])
    model = hybrid.embed_model
    return {
        "hybrid": hybrid,
        "hybrid with a fusion": HybridRetriever(
            hybrid.backend, embed_model=model, fusion=RRF(), top_k=4
        ),
        "legs": branches(a=keyword, b=other) >> RRF(weights={"a": 2.0}),
        "LlamaIndex's": QueryFusionRetriever([keyword, other], num_queries=1, similarity_top_k=4),
        "MMR": hybrid >> Top(4) >> MMR(0.7, top_k=3),
    }


@pytest.mark.parametrize("name", ["hybrid", "hybrid with a fusion", "legs", "LlamaIndex's", "MMR"])
def test_what_is_measured_is_what_the_tuned_pipeline_returns(
    hybrid: HybridRetriever, name: str
) -> None:
    whole = pipelines(hybrid)[name]
    pipeline = FusedPipeline(whole)
    judged = known_item_questions(sample_nodes(), count=3)
    trial = Trial(pipeline, judged, "RR")
    trial.collect(None, progress=False)
    default = pipeline.default
    other = pipeline.settings_of("fusion and weights", default)[14]
    settings = [default, other, *pipeline.settings_of("MMR lambda", default)[:1]]
    for setting in settings:
        made = pipeline.rebuilt(setting)
        for query_id, text in judged.queries.items():
            expected = pipeline.ranking(setting, text, saved_rankings(trial, query_id))
            found = [hit.node.node_id for hit in made.retrieve(text)]
            assert found == expected[: len(found)], setting
            if setting == default:
                assert found == [hit.node.node_id for hit in whole.retrieve(text)]


def test_scope_filters_and_arguments_survive(hybrid: HybridRetriever) -> None:
    from llama_retrieval_ext import Scope  # noqa: PLC0415

    bound = hybrid.for_scope(Scope("acme"))
    bound.requires_scope = True
    pipeline = FusedPipeline(bound)
    made = pipeline.rebuilt(Setting((("vector", 0.3), ("keyword", 0.7)), RRF(20), 5))
    assert isinstance(made, HybridRetriever)
    assert (made.scope, made.requires_scope, made.top_k) == (Scope("acme"), True, 4)
    assert made.weights == {"vector": 0.3, "keyword": 0.7}
    assert {leg.leg.retriever.scope for leg in pipeline.legs.values()} == {Scope("acme")}  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_damping_of_a_walk_is_tried_on_the_seeds_saved_ranking() -> None:
    nodes = [
        TextNode(
            id_=f"n{n}",
            text=f"Film {n} was made by Anne {n + 1}.",
            embedding=[1.0, n / 9],
            metadata={"file_name": f"film{n}.txt"},
        )
        for n in range(9)
    ]
    with EmbeddedVectorStore(":memory:") as store, EmbeddedGraph(":memory:") as graph:
        store.add(list(nodes))
        graph.upsert(*passage_rows(nodes, PassageLinks()))
        seed = Shifted(2)
        retriever = GraphRetriever(store, graph=graph, seed=seed)
        judged = Judgements(
            {f"q{n}": f"film {n % 7}  {n}" for n in range(21)},
            # The seed's hits name no file: only the walk's own do.
            {f"q{n}": {f"film{n % 7}.txt": 1} for n in range(21)},
        )
        result = tuned(retriever, judged)
        assert len(seed.calls) == 21
        assert [choice.parameter for choice in result.choices] == ["damping"]
        assert result.table["nDCG@10"].max() > 0
        made = SeededGraph(retriever, seed).rebuilt(Setting(damping=0.8))
        assert isinstance(made, GraphRetriever)
        assert (made.damping, made.seed) == (0.8, seed)


def test_a_hybrid_over_two_stores_is_tuned_and_keeps_both(hybrid: HybridRetriever) -> None:
    index = VectorStoreIndex(sample_nodes(), embed_model=FakeEmbedding())  # keywords in memory
    two = HybridRetriever(hybrid.backend, keyword_store=index, embed_model=hybrid.embed_model)
    made = FusedPipeline(two).rebuilt(Setting((("vector", 0.3), ("keyword", 0.7)), RRF(20), 5))
    assert isinstance(made, HybridRetriever)
    assert made.keyword.backend is two.keyword.backend
    expected = HybridRetriever(
        hybrid.backend,
        keyword_store=index,
        embed_model=hybrid.embed_model,
        fusion=RRF(20, weights=(0.3, 0.7)),
        candidates=5,
    )
    assert node_ids(made.retrieve("leave")) == node_ids(expected.retrieve("leave"))


class OneAfterTheOther(Fusion):
    """A fusion without weights."""

    def fuse(self, rankings):  # type: ignore[no-untyped-def, override]  # noqa: ANN001, ANN201
        return [hit for ranking in rankings.values() for hit in ranking]


def test_what_cannot_be_tuned_is_refused(hybrid: HybridRetriever) -> None:
    pushed = HybridRetriever(
        hybrid.backend, embed_model=hybrid.embed_model, fusion=RRF(), pushdown=True
    )
    legs = branches(a=Shifted(1), b=Shifted(2))
    for retriever, what in (
        (Shifted(1), "got Shifted"),
        (pushed, "pushdown=False"),
        (legs >> OneAfterTheOther(), "OneAfterTheOther"),
    ):
        with pytest.raises(ConfigurationError, match=what):
            tuned(retriever)


def test_a_leg_that_fails_is_not_weighed() -> None:
    legs = branches(up=Noisy("up", lambda n: True), down=FakeRetriever(error=OSError("gone")))
    with pytest.raises(ExecutionError, match=r"leg 'down' failed for 24 of 24 questions.*gone"):
        tuned(legs >> RRF())


def test_a_tuning_shows_its_verdict_and_reasons() -> None:
    good, bad = Noisy("good", lambda n: True), Noisy("bad", lambda n: False)
    result = tuned(branches(good=good, bad=bad) >> WeightedSum())
    for shown in (printed(result), result._repr_html_()):
        assert "fusion and weights" in shown
        assert "It gains" in shown
    assert repr(result) == result.verdict


def test_a_tuned_pipeline_is_written_as_a_preset(tmp_path: Path) -> None:
    pytest.importorskip("llama_retrieval_ext.config.yaml")
    keyword = BM25Retriever(sample_nodes())
    result = Tuning(keyword >> Top(3), "RR", JUDGED)
    with pytest.raises(ConfigurationError, match="live="):
        result.to_yaml()
    text = result.to_yaml(tmp_path / "tuned.yaml", live={"keyword": keyword})
    assert (tmp_path / "tuned.yaml").read_text() == text
    assert "ref: keyword" in text
