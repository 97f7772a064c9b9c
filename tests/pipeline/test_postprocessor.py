"""`Postprocessed`: LlamaIndex's postprocessors, which change what they get."""

import asyncio
import math

import pytest
from llama_index.core.postprocessor import (
    LongContextReorder,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
    SimilarityPostprocessor,
)
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import (
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.pipeline.postprocessor import Postprocessed
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import Contribution, Hit, node_ids
from llama_retrieval_ext.testing.fakes import FakeRetriever


class InPlaceReranker(BaseNodePostprocessor):
    """Does what many do: writes into the hits, the nodes and the query it gets."""

    scores: dict[str, float | None]

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        for hit in nodes:
            hit.score = self.scores[hit.node.node_id]
            hit.node.metadata["seen"] = True
            hit.node.set_content("rewritten")
        if query_bundle is not None:
            query_bundle.embedding = [1.0]
        return sorted(nodes, key=lambda hit: -(hit.score or 0.0))


class PlainReranker(InPlaceReranker):
    """Makes plain hits of its own, as most do."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return [NodeWithScore(node=hit.node, score=self.scores[hit.node.node_id]) for hit in nodes]


class Neighbours(BaseNodePostprocessor):
    """Adds a node without a score, as ``PrevNextNodePostprocessor`` does."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return [*nodes, NodeWithScore(node=TextNode(id_="next"), score=None)]


def hits() -> list[Hit]:
    legs = (Contribution("dense", 1, 0.9, 1.0, 0.9),)
    return [
        Hit(
            node=TextNode(id_="a", text="a"), score=0.9, source="x", contributions=legs, priority=1
        ),
        Hit(node=TextNode(id_="b", text="b"), score=0.8, source="x"),
    ]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_nothing_that_came_in_is_changed(*, asynchronous: bool) -> None:
    source = FakeRetriever([("a", 0.9), ("b", 0.8)])
    query = Query("q")
    pipeline = source >> Postprocessed(InPlaceReranker(scores={"a": 0.1, "b": 0.7}))
    found = asyncio.run(pipeline.aretrieve(query)) if asynchronous else pipeline.retrieve(query)
    assert [(hit.node_id, hit.score) for hit in found] == [("b", 0.7), ("a", 0.1)]
    assert [(hit.node_id, hit.score, hit.text, hit.metadata) for hit in source.hits] == [
        ("a", 0.9, "a", {}),
        ("b", 0.8, "b", {}),
    ]
    assert query == Query("q")


def test_a_replaced_text_arrives_and_the_original_stays() -> None:
    source = FakeRetriever([("a", 0.9, "sentence", {"window": "the whole window"})])
    found = (source >> Postprocessed(MetadataReplacementPostProcessor("window"))).retrieve("q")
    assert found[0].text == "the whole window"
    assert source.hits[0].text == "sentence"


def test_logits_become_probabilities_and_the_order_stays() -> None:
    stage = Postprocessed(InPlaceReranker(scores={"a": -2.0, "b": 0.0}), score_kind="logit")
    found = run(stage.refine_plan(Query("q"), hits()))
    assert [hit.node_id for hit in found] == ["b", "a"]
    assert [hit.score for hit in found] == pytest.approx([0.5, 1 / (1 + math.exp(2))])


def test_a_logit_that_equals_the_score_before_is_a_logit_all_the_same() -> None:
    stage = Postprocessed(InPlaceReranker(scores={"a": 0.9, "b": 0.8}), score_kind="logit")
    found = run(stage.refine_plan(Query("q"), hits()))
    assert found[0].score == pytest.approx(1 / (1 + math.exp(-0.9)))


def test_what_a_hit_was_before_stays_known() -> None:
    stage = Postprocessed(PlainReranker(scores={"a": 0.1, "b": 0.8}))
    first, second = run(stage.refine_plan(Query("q"), hits()))
    assert (first.source, first.priority) == ("x", 1)
    assert [(part.leg, part.rank, part.score, part.share) for part in first.contributions] == [
        ("dense", 1, 0.9, 0.0),
        ("PlainReranker", 1, 0.1, 0.1),
    ]
    assert second == hits()[1]


def test_a_removed_score_is_that_of_before() -> None:
    stage = Postprocessed(PlainReranker(scores={"a": None, "b": None}))
    assert [hit.score for hit in run(stage.refine_plan(Query("q"), hits()))] == [0.9, 0.8]


def test_an_added_node_without_a_score_has_the_lowest() -> None:
    found = run(Postprocessed(Neighbours()).refine_plan(Query("q"), hits()))
    assert [(hit.node_id, hit.score, hit.source) for hit in found] == [
        ("a", 0.9, "x"),
        ("b", 0.8, "x"),
        ("next", 0.8, "Neighbours"),
    ]


def test_a_score_that_is_no_number_is_an_error() -> None:
    stage = Postprocessed(PlainReranker(scores={"a": math.nan, "b": 0.1}))
    with pytest.raises(ScoreError):
        run(stage.refine_plan(Query("q"), hits()))


def test_filters_and_reorderings_of_llama_index_do_what_they_do() -> None:
    source = FakeRetriever([("a", 0.9), ("b", 0.8), ("c", 0.1)])
    cutoff = Postprocessed(SimilarityPostprocessor(similarity_cutoff=0.5))
    assert node_ids((source >> cutoff).retrieve("q")) == ["a", "b"]
    assert node_ids((source >> Postprocessed(LongContextReorder())).retrieve("q")) == [
        "a",
        "c",
        "b",
    ]


def test_a_failing_postprocessor_is_not_skipped() -> None:
    class Censor(InPlaceReranker):
        def _postprocess_nodes(
            self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
        ) -> list[NodeWithScore]:
            raise ConnectionError("the list of secrets cannot be read")

    with pytest.raises(ConnectionError):
        (FakeRetriever([("a", 0.9)]) >> Postprocessed(Censor(scores={}))).retrieve("q")


def test_what_a_postprocessor_adds_from_elsewhere_passes_scope_and_filters() -> None:
    acme, globex = (
        TextNode(id_=id_, text=id_, metadata={"tenant_id": id_, "lang": "en"})
        for id_ in ("acme", "globex")
    )
    acme.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="globex")
    docstore = SimpleDocumentStore()
    docstore.add_documents([acme, globex])
    source = FakeRetriever()
    source.hits = [NodeWithScore(node=acme, score=1.0)]
    pipeline = source >> Postprocessed(PrevNextNodePostprocessor(docstore=docstore, mode="next"))
    assert node_ids(pipeline.retrieve("query")) == ["acme", "globex"]
    result = pipeline.search("query", scope=Scope("acme"))
    assert node_ids(result.hits) == ["acme"]
    assert "1 of 1 hits" in result.degraded[0].reason
    assert "globex" not in str(result.to_dict())
