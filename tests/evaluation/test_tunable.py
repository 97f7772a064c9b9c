"""Pipelines rebuilt with other settings."""

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.schema import TextNode

from llama_retrieval_ext import (
    MMR,
    RRF,
    BM25Retriever,
    Fusion,
    HybridRetriever,
    QueryFusionRetriever,
    Top,
    branches,
)
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation import Judgements, known_item_questions
from llama_retrieval_ext.evaluation.trial import Trial
from llama_retrieval_ext.evaluation.tunable import FusedPipeline, SeededGraph, Setting
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.retrievers import GraphRetriever
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding, sample_nodes
from tests.cases import cases
from tests.evaluation.conftest import Shifted, tuned


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


@pytest.mark.slow
@cases("name", ["hybrid", "hybrid with a fusion", "legs", "LlamaIndex's", "MMR"])
def test_the_measured_ranking_is_the_one_that_the_tuned_pipeline_returns(
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
    bound.requires_scope = bound.requires_principals = True
    pipeline = FusedPipeline(bound)
    made = pipeline.rebuilt(Setting((("vector", 0.3), ("keyword", 0.7)), RRF(20), 5))
    assert isinstance(made, HybridRetriever)
    assert (made.scope, made.requires_scope, made.top_k) == (Scope("acme"), True, 4)
    assert made.requires_principals
    assert made.weights == {"vector": 0.3, "keyword": 0.7}
    assert {leg.leg.retriever.scope for leg in pipeline.legs.values()} == {Scope("acme")}  # type: ignore[attr-defined]


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


def test_a_pipeline_that_cannot_be_tuned_is_refused(hybrid: HybridRetriever) -> None:
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
