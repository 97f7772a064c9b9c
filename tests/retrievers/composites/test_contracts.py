"""Every composite keeps the contract of retrievers, over the embedded engine."""

import pytest
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import IndexNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.auto_merging import AutoMergingRetriever
from llama_retrieval_ext.retrievers.fallback import FallbackRetriever
from llama_retrieval_ext.retrievers.intent import IntentAdaptiveRetriever
from llama_retrieval_ext.retrievers.query_fusion import QueryFusionRetriever
from llama_retrieval_ext.retrievers.recursive import RecursiveRetriever
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.retrievers.routing.rule_selector import RouteRule, RuleSelector
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stages.selection import Top
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.testing.corpus import SAMPLE_QUERIES
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.retriever_contract import RetrieverContract

MODEL = FakeEmbedding()
ENGLISH_AND_CHINESE = SAMPLE_QUERIES[:2]


@pytest.fixture
def vector(store: EmbeddedVectorStore) -> Retriever:
    return VectorRetriever(store, embed_model=MODEL, top_k=20)


@pytest.fixture
def keyword(store: EmbeddedVectorStore) -> Retriever:
    return KeywordRetriever(store, top_k=20)


class SignPost(Retriever):
    """Finds one index node, whatever the query."""

    def __init__(self) -> None:
        super().__init__(top_k=1, name="sign post")

    def plan(self, query: Query) -> Plan[list[Hit]]:
        yield from ()
        node = IndexNode(id_="to the documents", text="documents", index_id="documents")
        return [Hit(node=node, score=1.0, source=self.name)]


class CompositeContract(RetrieverContract):
    queries = ENGLISH_AND_CHINESE


class ExpressionContract(CompositeContract):
    """Of composites that print the expression that makes them."""

    def test_its_representation_tells_what_it_is_and_stays_the_same(
        self, retriever: Retriever
    ) -> None:
        before = repr(retriever)
        assert before.startswith("(VectorRetriever(")
        assert " >> " in before
        retriever.retrieve(self.queries[0])
        assert repr(retriever) == before


class TestFused(ExpressionContract):
    @pytest.fixture
    def retriever(self, vector: Retriever, keyword: Retriever) -> Retriever:
        return (vector | keyword) >> RRF()


@pytest.mark.slow
class TestPipeline(ExpressionContract):
    @pytest.fixture
    def retriever(self, vector: Retriever, keyword: Retriever) -> Retriever:
        return (vector | keyword) >> WeightedSum(weights=(0.7, 0.3)) >> Top(8)


class TestQueryFusionRetriever(CompositeContract):
    @pytest.fixture
    def retriever(self, vector: Retriever, keyword: Retriever) -> Retriever:
        mode = FUSION_MODES.RELATIVE_SCORE
        return QueryFusionRetriever(
            {"dense": vector, "bm25": keyword}, mode=mode, num_queries=1, similarity_top_k=5
        )


class TestFallbackRetriever(CompositeContract):
    @pytest.fixture
    def retriever(self, vector: Retriever, keyword: Retriever) -> Retriever:
        return FallbackRetriever(keyword, vector, enough=3)


class TestRouterRetriever(CompositeContract):
    @pytest.fixture
    def retriever(self, vector: Retriever, keyword: Retriever) -> Retriever:
        rules = RuleSelector([RouteRule("terms", script="han")])  # the rest takes both routes
        routes = {"terms": Route(keyword, "by terms"), "meaning": Route(vector, "by meaning")}
        return RouterRetriever(rules, routes)


class TestRecursiveRetriever(CompositeContract):
    @pytest.fixture
    def retriever(self, vector: Retriever) -> Retriever:
        return RecursiveRetriever("root", {"root": SignPost(), "documents": vector})


class TestAutoMergingRetriever(CompositeContract):
    @pytest.fixture
    def retriever(self, vector: Retriever) -> Retriever:
        return AutoMergingRetriever(vector, SimpleDocumentStore())


class TestIntentAdaptiveRetriever(CompositeContract):
    @pytest.fixture
    def retriever(self, vector: Retriever, keyword: Retriever) -> Retriever:
        return IntentAdaptiveRetriever(vector | keyword)


@pytest.mark.slow
class TestNestedThreeDeep(CompositeContract):
    @pytest.fixture
    def retriever(self, vector: Retriever, keyword: Retriever) -> Retriever:
        fused = (vector | keyword) >> RRF() >> Top(12)
        routed = RouterRetriever(
            RuleSelector([RouteRule("both", script="han")]),
            {
                "both": Route(fused, "by terms and meaning"),
                "more": Route(RecursiveRetriever("r", {"r": SignPost(), "documents": fused}), ""),
            },
        )
        return FallbackRetriever(routed, vector, enough=2)
