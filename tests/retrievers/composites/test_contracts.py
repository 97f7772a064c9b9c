"""Every composite keeps the contract of retrievers, over the embedded engine."""

from collections.abc import Callable

import pytest
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import IndexNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext import RRF, Hit, Query, Retriever, Route, RouterRetriever, Top, WeightedSum
from llama_retrieval_ext.execution import Plan
from llama_retrieval_ext.retrievers import FallbackRetriever, RecursiveRetriever
from llama_retrieval_ext.retrievers.auto_merging import AutoMergingRetriever
from llama_retrieval_ext.retrievers.intent import IntentAdaptiveRetriever
from llama_retrieval_ext.retrievers.query_fusion import QueryFusionRetriever
from llama_retrieval_ext.retrievers.routing.selectors import RouteRule, RuleSelector
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding, RetrieverContract
from llama_retrieval_ext.testing.corpus import SAMPLE_QUERIES
from tests.quick import in_turn


class SignPost(Retriever):
    """Finds one index node, whatever the query."""

    def __init__(self) -> None:
        super().__init__(top_k=1, name="sign post")

    def plan(self, query: Query) -> Plan[list[Hit]]:
        yield from ()
        node = IndexNode(id_="to the documents", text="documents", index_id="documents")
        return [Hit(node=node, score=1.0, source=self.name)]


def routed(vector: Retriever, keyword: Retriever) -> Retriever:
    rules = RuleSelector([RouteRule("terms", script="han")])  # the rest takes both routes
    routes = {"terms": Route(keyword, "by terms"), "meaning": Route(vector, "by meaning")}
    return RouterRetriever(rules, routes)


def nested_three_deep(vector: Retriever, keyword: Retriever) -> Retriever:
    fused = (vector | keyword) >> RRF() >> Top(12)
    more = RecursiveRetriever("r", {"r": SignPost(), "documents": fused})
    rules = RuleSelector([RouteRule("both", script="han")])
    routes = {"both": Route(fused, "by terms and meaning"), "more": Route(more, "")}
    return FallbackRetriever(RouterRetriever(rules, routes), vector, enough=2)


Compose = Callable[[Retriever, Retriever], Retriever]
COMPOSITES: dict[str, Compose] = {"fused": lambda vector, keyword: (vector | keyword) >> RRF()}
SLOW: dict[str, Compose] = {
    "query fusion": lambda vector, keyword: QueryFusionRetriever(
        {"dense": vector, "bm25": keyword},
        mode=FUSION_MODES.RELATIVE_SCORE,
        num_queries=1,
        similarity_top_k=5,
    ),
    "router": routed,
    "recursive": lambda vector, keyword: RecursiveRetriever(
        "root", {"root": SignPost(), "documents": vector}
    ),
    "fallback": lambda vector, keyword: FallbackRetriever(keyword, vector, enough=3),
    "auto-merging": lambda vector, keyword: AutoMergingRetriever(vector, SimpleDocumentStore()),
    "intent": lambda vector, keyword: IntentAdaptiveRetriever(vector | keyword),
    "pipeline": lambda vector, keyword: (
        (vector | keyword) >> WeightedSum(weights=(0.7, 0.3)) >> Top(8)
    ),
    "nested three deep": nested_three_deep,
}
FUSED, *SIMPLE = [*COMPOSITES][:4]
OTHERS = [*COMPOSITES][4:]


class TestComposites(RetrieverContract):
    queries = SAMPLE_QUERIES[:2]  # English and Chinese

    @pytest.fixture(params=[FUSED, *in_turn(*SIMPLE), *in_turn(*OTHERS)])
    def retriever(self, request: pytest.FixtureRequest, store: EmbeddedVectorStore) -> Retriever:
        make = COMPOSITES[request.param]
        vector = VectorRetriever(store, embed_model=FakeEmbedding(), top_k=20)
        return make(vector, KeywordRetriever(store, top_k=20))

    def test_the_representation_names_the_class_and_stays_the_same(
        self, retriever: Retriever
    ) -> None:
        before = repr(retriever)
        assert before.startswith((f"{type(retriever).__name__}(", "(VectorRetriever("))
        retriever.retrieve(self.queries[0])
        assert repr(retriever) == before
