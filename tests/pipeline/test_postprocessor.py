"""Postprocessors and rerankers of LlamaIndex as stages."""

import asyncio
import math
import threading
from collections.abc import Callable

import pytest
from llama_index.core.postprocessor import LLMRerank as LlamaIndexLLMRerank
from llama_index.core.postprocessor import (
    LongContextReorder,
    MetadataReplacementPostProcessor,
    PrevNextNodePostprocessor,
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
from pydantic import Field

from llama_retrieval_ext import Query, RerankChain, RerankRetriever, Retriever, RuleRerank, Scope
from llama_retrieval_ext.errors import ExecutionError, ScoreError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline import Postprocessed
from llama_retrieval_ext.results import Contribution, Hit
from llama_retrieval_ext.testing import FakeRetriever, FixedRetriever, ScriptedLLM
from tests.cases import cases
from tests.searching import Searched


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


@cases("asynchronous", [False, True])
def test_a_postprocessor_that_writes_into_hits_changes_no_hits_of_the_source(
    *, asynchronous: bool
) -> None:
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


def test_metadata_replacement_leaves_the_text_of_the_source() -> None:
    source = FakeRetriever([("a", 0.9, "sentence", {"window": "the whole window"})])
    found = (source >> Postprocessed(MetadataReplacementPostProcessor("window"))).retrieve("q")
    assert found[0].text == "the whole window"
    assert source.hits[0].text == "sentence"


def test_logits_become_probabilities_and_the_order_stays() -> None:
    stage = Postprocessed(InPlaceReranker(scores={"a": -2.0, "b": 0.0}), score_kind="logit")
    found = run(stage.refine_plan(Query("q"), hits()))
    assert [hit.node_id for hit in found] == ["b", "a"]
    assert [hit.score for hit in found] == pytest.approx([0.5, 1 / (1 + math.exp(2))])


def test_a_logit_equal_to_the_previous_score_is_converted() -> None:
    stage = Postprocessed(InPlaceReranker(scores={"a": 0.9, "b": 0.8}), score_kind="logit")
    found = run(stage.refine_plan(Query("q"), hits()))
    assert found[0].score == pytest.approx(1 / (1 + math.exp(-0.9)))


def test_postprocessed_hits_keep_source_priority_and_contributions() -> None:
    stage = Postprocessed(PlainReranker(scores={"a": 0.1, "b": 0.8}))
    first, second = run(stage.refine_plan(Query("q"), hits()))
    assert (first.source, first.priority) == ("x", 1)
    assert [(part.leg, part.rank, part.score, part.share) for part in first.contributions] == [
        ("dense", 1, 0.9, 0.0),
        ("PlainReranker", 1, 0.1, 0.1),
    ]
    assert second == hits()[1]


def test_a_score_that_a_postprocessor_removes_is_restored() -> None:
    stage = Postprocessed(PlainReranker(scores={"a": None, "b": None}))
    assert [hit.score for hit in run(stage.refine_plan(Query("q"), hits()))] == [0.9, 0.8]


def test_a_node_added_without_a_score_gets_the_lowest() -> None:
    found = run(Postprocessed(Neighbours()).refine_plan(Query("q"), hits()))
    assert [(hit.node_id, hit.score, hit.source) for hit in found] == [
        ("a", 0.9, "x"),
        ("b", 0.8, "x"),
        ("next", 0.8, "Neighbours"),
    ]


def test_a_nan_score_of_a_postprocessor_is_an_error() -> None:
    stage = Postprocessed(PlainReranker(scores={"a": math.nan, "b": 0.1}))
    with pytest.raises(ScoreError):
        run(stage.refine_plan(Query("q"), hits()))


def test_the_error_of_a_postprocessor_ends_the_query() -> None:
    class Censor(InPlaceReranker):
        def _postprocess_nodes(
            self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
        ) -> list[NodeWithScore]:
            raise ConnectionError("the list of secrets cannot be read")

    with pytest.raises(ConnectionError):
        (FakeRetriever([("a", 0.9)]) >> Postprocessed(Censor(scores={}))).retrieve("q")


def test_nodes_that_a_postprocessor_adds_are_checked_against_the_scope() -> None:
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


SOURCE = FixedRetriever(
    [("a", 0.9, "travel"), ("b", 0.8, "annual leave"), ("c", 0.7, "sick leave")]
)


class Bare(BaseNodePostprocessor):
    """Answers with these ids, whatever comes in; it is no reranker."""

    ids: str

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        known = {hit.node.node_id: hit for hit in nodes}
        return [
            known.get(id_) or NodeWithScore(node=TextNode(id_=id_), score=2.0) for id_ in self.ids
        ]


class BareRerank(Bare):
    """The same, by its name a reranker."""


def llm_rerank(answer: str) -> LlamaIndexLLMRerank:
    return LlamaIndexLLMRerank(llm=ScriptedLLM([answer] * 2), top_n=3, choice_batch_size=10)


COMPOSITIONS: tuple[Callable[[BaseNodePostprocessor], Retriever], ...] = (
    lambda part: SOURCE >> part,
    lambda part: SOURCE >> RerankChain(part),
    lambda part: RerankRetriever(SOURCE, part, top_k=3),
)


@cases("compose", COMPOSITIONS)
def test_a_reranker_of_llama_index_without_an_answer_degrades_and_keeps_the_order(
    searched: Searched, compose: Callable[[BaseNodePostprocessor], Retriever]
) -> None:
    for part in (
        BareRerank(ids=""),
        llm_rerank("I cannot judge these."),
        llm_rerank("Doc: 0, Relevance: 9"),
    ):
        result = searched(compose(part), "annual leave")
        assert node_ids(result.hits) == ["a", "b", "c"]
        (degraded,) = result.degraded
        assert (degraded.where, "returned no hits" in degraded.reason) == (
            type(part).__name__,
            True,
        )


def test_unknown_and_repeated_documents_of_a_llama_index_llm_rerank_are_ignored(
    searched: Searched,
) -> None:
    answer = (
        "Doc: 0, Relevance: 10\nDoc: 2, Relevance: 7\nDoc: 2, Relevance: 3\nDoc: -9, Relevance: 3"
    )
    reranker = llm_rerank(answer)
    for compose in COMPOSITIONS:
        result = searched(
            compose(reranker.model_copy(update={"llm": ScriptedLLM([answer] * 2)})), "q"
        )
        assert [(hit.node_id, hit.score) for hit in result.hits] == [("b", 7.0)]
        assert result.degraded == ()
    assert reranker._parse_choice_select_answer_fn("Doc: 0, Relevance: 9", 3) == ([0], [9.0])


def test_a_hit_that_a_postprocessor_repeats_counts_at_its_first_place(searched: Searched) -> None:
    for part in (Bare(ids="bab"), BareRerank(ids="bab")):
        hits = searched(SOURCE >> part, "q").hits
        assert node_ids(hits) == ["b", "a"]
        assert hits[0].score is not None
        assert hits[1].score is not None
        assert hits[0].score >= hits[1].score


def test_nodes_that_a_reranker_adds_are_dropped_and_reported(searched: Searched) -> None:
    result = searched(SOURCE >> BareRerank(ids="xba"), "q")
    assert node_ids(result.hits) == ["b", "a"]
    assert "dropped 1 node that" in result.degraded[0].reason
    assert node_ids(searched(SOURCE >> Bare(ids="xba"), "q").hits) == ["x", "b", "a"]


def test_a_reorder_gets_at_most_top_k_hits(searched: Searched) -> None:
    result = searched(SOURCE >> LongContextReorder(), Query("q", top_k=2))
    assert set(node_ids(result.hits)) == {"a", "b"}


class WithoutReturn(BaseNodePostprocessor):
    """Forgets its return statement."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return None  # type: ignore[return-value]


def test_a_postprocessor_must_return_a_list(searched: Searched) -> None:
    with pytest.raises(ExecutionError, match=r"WithoutReturn.postprocess_nodes must return a list"):
        searched(SOURCE >> WithoutReturn(), "annual leave")
    result = searched(SOURCE >> RerankChain(WithoutReturn(), RuleRerank()), "annual leave")
    assert node_ids(result.hits)[0] == "b"
    assert [part.where for part in result.degraded] == ["WithoutReturn"]


class Threads(BaseNodePostprocessor):
    """Notes the threads that it runs in; ``_apostprocess_nodes`` awaits nothing."""

    has_blocking: bool
    seen: list[int] = Field(default_factory=list)

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not self.has_blocking:
            raise NotImplementedError
        self.seen.append(threading.get_ident())
        return nodes

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        self.seen.append(threading.get_ident())
        return nodes


@pytest.mark.parametrize("has_blocking", [True, False])
async def test_a_postprocessor_that_awaits_nothing_runs_outside_the_event_loop(
    *, has_blocking: bool
) -> None:
    worker = Threads(has_blocking=has_blocking)
    pipeline = FakeRetriever([("a", 0.9)]) >> Postprocessed(worker)
    assert node_ids(await pipeline.aretrieve("q")) == ["a"]
    assert node_ids(pipeline.retrieve("q")) == ["a"]
    assert worker.seen
    assert threading.get_ident() not in worker.seen[:1]
