"""`RerankRetriever`: a retriever with a reranker behind it, whatever that is and does."""

import asyncio
import time
from typing import Any

import pytest
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext import MMR, RRF, Query, Retriever, RuleRerank
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import RerankRetriever
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stages import EmbeddingRerank
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import (
    FakeEmbedding,
    FakeRetriever,
    IsolationContract,
    RankingContract,
    RetrieverContract,
)
from tests.cases import cases
from tests.patience import soon
from tests.searching import Searched

ROWS = [("a", 0.9, "travel"), ("b", 0.8, "sick leave"), ("c", 0.7, "annual leave")]


class ByLength(BaseNodePostprocessor):
    """A foreign reranker: the longest text is the best, and scores are written in place."""

    top_n: int = 100
    delay_s: float = 0.0
    fail: Exception | None = None

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        time.sleep(self.delay_s)
        if self.fail is not None:
            raise self.fail
        for hit in nodes:
            hit.score = float(len(hit.node.get_content()))
        return sorted(nodes, key=lambda hit: -(hit.score or 0.0))[: self.top_n]


@pytest.fixture
def dense(store: EmbeddedVectorStore) -> VectorRetriever:
    return VectorRetriever(store, embed_model=FakeEmbedding(), top_k=20)


@pytest.mark.slow
class TestContractWithRules(RetrieverContract):
    @pytest.fixture
    def retriever(self, dense: VectorRetriever) -> Retriever:
        return RerankRetriever(dense, RuleRerank())


@pytest.mark.slow
class TestContractThreeDeepWithAForeignReranker(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self, dense: VectorRetriever, store: EmbeddedVectorStore) -> Retriever:
        keyword = KeywordRetriever(store, top_k=20)
        inner = RerankRetriever(dense, EmbeddingRerank(FakeEmbedding(seed=1)), top_k=20)
        return RerankRetriever((inner | keyword) >> RRF(), ByLength(), fetch_k=20)


def test_any_postprocessor_reranks_without_changing_the_retrievers_hits(searched: Searched) -> None:
    source = FakeRetriever(ROWS)
    result = searched(RerankRetriever(source, ByLength(), top_k=2), "annual leave")
    assert [(hit.node_id, hit.score) for hit in result.hits] == [("c", 12.0), ("b", 10.0)]
    assert [(hit.node_id, hit.score) for hit in source.hits] == [(id_, s) for id_, s, _ in ROWS]


def test_a_failing_reranker_keeps_the_retrievers_order_and_degrades(searched: Searched) -> None:
    retriever = RerankRetriever(FakeRetriever(ROWS), ByLength(fail=ConnectionError("no service")))
    result = searched(retriever, "annual leave")
    assert [(hit.node_id, hit.score) for hit in result.hits] == [(id_, s) for id_, s, _ in ROWS]
    assert [(part.where, part.reason) for part in result.degraded] == [
        ("ByLength", "ConnectionError: no service")
    ]


def test_a_scope_error_of_a_reranker_is_raised() -> None:
    retriever = RerankRetriever(FakeRetriever(ROWS), ByLength(fail=ScopeRequiredError("no scope")))
    with pytest.raises(ScopeRequiredError):
        retriever.retrieve("q")


def test_a_late_reranker_costs_its_timeout_and_degrades(searched: Searched) -> None:
    retriever = RerankRetriever(FakeRetriever(ROWS), ByLength(delay_s=60), timeout_s=0.05)
    with soon():
        result = searched(retriever, "annual leave")
    assert node_ids(result.hits) == ["a", "b", "c"]
    assert "did not answer within 0.05 s" in result.degraded[0].reason


class Duck:
    """Any object with a method `rerank`, which changes what it gets."""

    def rerank(self, query: QueryBundle, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        if query.query_str == "fail":
            raise OSError("the service is gone")
        for hit in nodes:
            hit.score = float(len(hit.text))
        return sorted(nodes, key=lambda hit: -len(hit.text))[:2]


class AsyncDuck:
    async def rerank(self, query: QueryBundle, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        await asyncio.sleep(0)
        return Duck().rerank(query, nodes)


@pytest.mark.parametrize("reranker", [Duck(), AsyncDuck()])
def test_an_object_with_rerank_is_a_reranker(reranker: Any, searched: Searched) -> None:
    source = FakeRetriever(ROWS)
    retriever = RerankRetriever(source, reranker)
    result = searched(retriever, "query")
    assert [(hit.node_id, hit.score) for hit in result] == [("c", 12.0), ("b", 10.0)]
    assert [hit.score for hit in source.hits] == [0.9, 0.8, 0.7]
    failed = searched(retriever, "fail")
    assert node_ids(failed.hits) == ["a", "b", "c"]
    assert "the service is gone" in failed.degraded[0].reason


def test_fetch_k_hits_are_reranked_and_never_fewer_than_top_k(dense: VectorRetriever) -> None:
    seen: list[int] = []

    class Counting(ByLength):
        def _postprocess_nodes(
            self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
        ) -> list[NodeWithScore]:
            seen.append(len(nodes))
            return super()._postprocess_nodes(nodes, query_bundle)

    retriever = RerankRetriever(dense, Counting(), top_k=2, fetch_k=5)
    assert len(retriever.retrieve("annual leave")) == 2
    assert len(retriever.retrieve(Query("annual leave", top_k=7))) == 7
    RerankRetriever(dense, Counting(), top_k=2).retrieve("annual leave")
    assert seen == [5, 7, 12]


def test_the_query_is_embedded_once_for_retriever_and_reranker(store: EmbeddedVectorStore) -> None:
    model = FakeEmbedding()
    dense = VectorRetriever(store, embed_model=model, top_k=20)
    RerankRetriever(dense, MMR(embed_model=model, store=store)).retrieve("annual leave")
    assert model.calls == ["annual leave"]


def test_a_reranker_whose_top_n_is_below_top_k_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"write ByLength\(..., top_n=5\)"):
        RerankRetriever(FakeRetriever(ROWS), ByLength(top_n=2), top_k=5)
    RerankRetriever(FakeRetriever(ROWS), ByLength(top_n=5), top_k=5)
    RerankRetriever(FakeRetriever(ROWS), SimilarityPostprocessor(), top_k=5)


@cases("wrong", [{"top_k": 0}, {"fetch_k": 0}, {"timeout_s": 0}, {"reranker": "cohere"}])
def test_rerank_arguments_out_of_range_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RerankRetriever(FakeRetriever(ROWS), **{"reranker": RuleRerank(), **wrong})
