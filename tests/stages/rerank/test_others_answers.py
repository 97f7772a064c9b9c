"""What LlamaIndex's rerankers and postprocessors may answer, and what becomes of it."""

from collections.abc import Callable

import pytest
from llama_index.core.postprocessor import LLMRerank as TheirLLMRerank
from llama_index.core.postprocessor import LongContextReorder as TheirReorder
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext import RRF, LongContextReorder, RerankChain, RerankRetriever, Top
from llama_retrieval_ext.errors import CompositionError, ExecutionError
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.stages.rerank.rules import RuleRerank
from llama_retrieval_ext.testing.fakes import FixedRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.searching import Searched

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


def theirs(answer: str) -> TheirLLMRerank:
    return TheirLLMRerank(llm=ScriptedLLM([answer] * 2), top_n=3, choice_batch_size=10)


WAYS: tuple[Callable[[BaseNodePostprocessor], Retriever], ...] = (
    lambda part: SOURCE >> part,
    lambda part: SOURCE >> RerankChain(part),
    lambda part: RerankRetriever(SOURCE, part, top_k=3),
)


@pytest.mark.parametrize("way", WAYS, ids=["pipeline", "chain", "retriever"])
def test_m3_a_reranker_that_answers_nothing_leaves_the_order_and_says_so(
    searched: Searched, way: Callable[[BaseNodePostprocessor], Retriever]
) -> None:
    for part in (
        BareRerank(ids=""),
        theirs("I cannot judge these."),
        theirs("Doc: 0, Relevance: 9"),
    ):
        result = searched(way(part), "annual leave")
        assert node_ids(result.hits) == ["a", "b", "c"]
        (degraded,) = result.degraded
        assert (degraded.where, "returned no hits" in degraded.reason) == (
            type(part).__name__,
            True,
        )


def test_m3_document_0_is_not_the_last_and_a_repeated_one_counts_once(searched: Searched) -> None:
    answer = (
        "Doc: 0, Relevance: 10\nDoc: 2, Relevance: 7\nDoc: 2, Relevance: 3\nDoc: -9, Relevance: 3"
    )
    reranker = theirs(answer)
    for way in WAYS:
        result = searched(way(reranker.model_copy(update={"llm": ScriptedLLM([answer] * 2)})), "q")
        assert [(hit.node_id, hit.score) for hit in result.hits] == [("b", 7.0)]
        assert result.degraded == ()
    assert reranker._parse_choice_select_answer_fn("Doc: 0, Relevance: 9", 3) == ([0], [9.0])


def test_the_chain_goes_on_behind_a_reranker_that_answers_nothing(searched: Searched) -> None:
    chain = RerankChain(theirs("no idea"), BareRerank(ids=""), RuleRerank())
    result = searched(SOURCE >> chain, "annual leave")
    assert node_ids(result.hits)[0] == "b"
    assert [part.where for part in result.degraded] == ["LLMRerank", "BareRerank"]


@pytest.mark.parametrize("way", WAYS, ids=["pipeline", "chain", "retriever"])
def test_a_filter_may_leave_nothing(
    searched: Searched, way: Callable[[BaseNodePostprocessor], Retriever]
) -> None:
    for part in (SimilarityPostprocessor(similarity_cutoff=0.95), Bare(ids="")):
        result = searched(way(part), "annual leave")
        assert (result.hits, result.degraded) == ([], ())


def test_a_hit_that_comes_twice_counts_where_it_stands_first(searched: Searched) -> None:
    for part in (Bare(ids="bab"), BareRerank(ids="bab")):
        hits = searched(SOURCE >> part, "q").hits
        assert node_ids(hits) == ["b", "a"]
        assert hits[0].score is not None
        assert hits[1].score is not None
        assert hits[0].score >= hits[1].score


def test_a_reranker_adds_nothing_and_the_answer_says_so(searched: Searched) -> None:
    result = searched(SOURCE >> BareRerank(ids="xba"), "q")
    assert node_ids(result.hits) == ["b", "a"]
    assert "1 nodes that were not in the ranking" in result.degraded[0].reason
    assert node_ids(searched(SOURCE >> Bare(ids="xba"), "q").hits) == ["x", "b", "a"]


@pytest.mark.parametrize("reorder", [TheirReorder(), LongContextReorder()])
def test_nothing_stands_behind_a_reorder(reorder: BaseNodePostprocessor) -> None:
    with pytest.raises(
        CompositionError, match=r"put it last: Top\(k=2\) >> LongContextReorder\((\.\.\.)?\)"
    ):
        SOURCE >> reorder >> Top(2)
    with pytest.raises(CompositionError, match="behind the fusion"):
        (SOURCE | (SOURCE >> reorder)) >> RRF()
    with pytest.raises(CompositionError, match="needs hits that are best first"):
        SOURCE >> (reorder >> Top(2))


def test_a_reorder_gets_no_more_hits_than_are_asked_for(searched: Searched) -> None:
    for reorder in (TheirReorder(), LongContextReorder()):
        result = searched(SOURCE >> reorder, Query("q", top_k=2))
        assert set(node_ids(result.hits)) == {"a", "b"}


class Speechless(BaseNodePostprocessor):
    """Forgets its return statement."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return None  # type: ignore[return-value]


def test_a_postprocessor_that_returns_no_list_fails_and_the_chain_goes_on(
    searched: Searched,
) -> None:
    with pytest.raises(ExecutionError, match=r"Speechless.postprocess_nodes must return a list"):
        searched(SOURCE >> Speechless(), "annual leave")
    result = searched(SOURCE >> RerankChain(Speechless(), RuleRerank()), "annual leave")
    assert node_ids(result.hits)[0] == "b"
    assert [part.where for part in result.degraded] == ["Speechless"]
