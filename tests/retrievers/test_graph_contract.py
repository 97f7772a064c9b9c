"""`GraphRetriever` keeps the contract of retrievers, as entity search and as a walk."""

from collections.abc import Generator

import pytest

from llama_retrieval_ext import HybridRetriever, Retriever
from llama_retrieval_ext.graph import PassageGraphs
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.retrievers import GraphRetriever
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding, IsolationContract, sample_nodes
from llama_retrieval_ext.testing.retriever_contract import RankingContract, RetrieverContract

MODEL = FakeEmbedding()
LINKS = PassageLinks(entity_fields=["tags"], gazetteer=["年假", "parse_filters", "canteen"])


@pytest.fixture(scope="module")
def graphs() -> Generator[PassageGraphs]:
    with EmbeddedGraph(":memory:") as graph:
        graph.upsert(*passage_rows(sample_nodes(), LINKS))
        yield PassageGraphs(graph, links=LINKS)


@pytest.mark.slow
class TestEntitySearch(RetrieverContract):
    @pytest.fixture
    def retriever(self, store: EmbeddedVectorStore, graphs: PassageGraphs) -> Retriever:
        return GraphRetriever(store, graph=graphs, top_k=5, enable_multi_hop=False)


@pytest.mark.slow
class TestEntitySearchOverSeveralHops(RankingContract, IsolationContract):
    independent = False  # a path through a passage that a filter excludes is none

    @pytest.fixture
    def retriever(self, store: EmbeddedVectorStore, graphs: PassageGraphs) -> Retriever:
        return GraphRetriever(store, graph=graphs, embed_model=MODEL, top_k=5)


@pytest.mark.slow
class TestWalk(RetrieverContract):
    @pytest.fixture
    def retriever(self, store: EmbeddedVectorStore, graphs: PassageGraphs) -> Retriever:
        seed = HybridRetriever(store, embed_model=MODEL)
        return GraphRetriever(store, graph=graphs, seed=seed, embed_model=MODEL, top_k=5)
