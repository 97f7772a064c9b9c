"""Retrievers over a store: their contract, and collapsed hits."""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_retrieval_ext.errors import ScopeViolationError
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.retrievers.store_retriever import StoreRetriever
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.testing.corpus import SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fake_backend import EVERYTHING, FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from llama_retrieval_ext.testing.retriever_contract import RankingContract, RetrieverContract

MODEL = FakeEmbedding()
QUERY = "annual leave days"


def of(document: str, node_id: str, text: str, **metadata: Any) -> TextNode:
    node = TextNode(
        id_=node_id, text=text, metadata=metadata, embedding=MODEL.get_text_embedding(text)
    )
    node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
    return node


# One document has everything that ranks first.
NODES = [
    *(of("long", f"long{place:03}", "annual leave days", shelf="a") for place in range(200)),
    *(of(f"d{place}", f"d{place}", f"annual leave of {place}", shelf="b") for place in range(5)),
    of("e", "e1", "leave of absence", shelf="c"),
]


class Leaking(FakeBackend):
    """Shows everybody everything."""

    def shows(self, node: TextNode, condition: Condition | None) -> bool:
        return True


def retrievers(backend: FakeBackend, **options: Any) -> list[StoreRetriever]:
    return [
        VectorRetriever(backend, embed_model=MODEL, **options),
        KeywordRetriever(backend, **options),
        HybridRetriever(backend, embed_model=MODEL, **options),
    ]


@pytest.mark.slow
class TestVectorRetriever(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self) -> StoreRetriever:
        backend = FakeBackend(sample_nodes(MODEL))
        return VectorRetriever(backend, embed_model=MODEL, top_k=5, collapse=Collapse())


@pytest.mark.parametrize("place", range(3), ids=["vector", "keyword", "hybrid"])
def test_a_document_with_many_good_passages_leaves_room_for_others(place: int) -> None:
    retriever = retrievers(FakeBackend(NODES), top_k=6, collapse=Collapse())[place]
    found = [hit.node.ref_doc_id for hit in retriever.retrieve(QUERY)]
    assert found[0] == "long"
    assert sorted(str(document) for document in found[1:6]) == ["d0", "d1", "d2", "d3", "d4"]
    assert node_ids(asyncio.run(retriever.aretrieve(QUERY))) == node_ids(retriever.retrieve(QUERY))


@pytest.mark.parametrize("place", range(3), ids=["vector", "keyword", "hybrid"])
def test_hits_are_collapsed_by_a_metadata_field(place: int) -> None:
    collapse = Collapse(2, by="shelf")
    retriever = retrievers(FakeBackend(NODES), top_k=10, collapse=collapse)[place]
    shelves = [hit.node.metadata["shelf"] for hit in retriever.retrieve(QUERY)]
    assert sorted(shelves) == ["a", "a", "b", "b", "c"]


def test_fewer_groups_than_top_k_within_most_hits_degrade_the_answer() -> None:
    backend = FakeBackend(NODES, features=replace(EVERYTHING, most_hits=150))
    retriever = KeywordRetriever(backend, top_k=3, collapse=Collapse())
    result = retriever.search(QUERY)
    assert node_ids(result.hits) == ["long000"]
    (degraded,) = result.degraded
    assert degraded.where == "keyword"
    assert "only 1 hit instead of 3 from the first 150" in degraded.reason


def test_hits_outside_the_scope_are_an_error_while_collapsing() -> None:
    backend = Leaking(sample_nodes(MODEL))
    retriever = VectorRetriever(
        backend, embed_model=MODEL, top_k=2, collapse=Collapse(), scope=Scope("nobody")
    )
    with pytest.raises(ScopeViolationError):
        retriever.retrieve(SAMPLE_QUERIES[0])


Make = Callable[[EmbeddedVectorStore], Retriever]
RETRIEVERS: dict[str, Make] = {
    "vector": lambda store: VectorRetriever(store, embed_model=MODEL, top_k=5),
    "keyword": lambda store: KeywordRetriever(store, top_k=5),
    "hybrid": lambda store: HybridRetriever(store, embed_model=MODEL, top_k=5),
}


@pytest.fixture(scope="module")
def nothing() -> Generator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as opened:
        yield opened


class TestOverTheEmbeddedEngine(RetrieverContract):
    @pytest.fixture(params=RETRIEVERS.values(), ids=[*RETRIEVERS])
    def make(self, request: pytest.FixtureRequest) -> Make:
        made: Make = request.param
        return made

    @pytest.fixture
    def retriever(self, make: Make, store: EmbeddedVectorStore) -> Retriever:
        return make(store)

    @pytest.fixture
    def empty_retriever(self, make: Make, nothing: EmbeddedVectorStore) -> Retriever:
        return make(nothing)


@pytest.mark.slow
class TestHybridRetrieverWithPushdown(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self, store: EmbeddedVectorStore) -> Retriever:
        return HybridRetriever(store, embed_model=MODEL, top_k=5, fusion=RRF(), pushdown=True)

    @pytest.fixture
    def empty_retriever(self, nothing: EmbeddedVectorStore) -> Retriever:
        return HybridRetriever(nothing, embed_model=MODEL, fusion=RRF(), pushdown=True)


class TestVectorRetrieverOverAnyStore(RankingContract, IsolationContract):
    @pytest.fixture(scope="class")
    @staticmethod
    def index() -> VectorStoreIndex:
        return VectorStoreIndex(sample_nodes(MODEL), embed_model=MODEL)

    @pytest.fixture
    def retriever(self, index: VectorStoreIndex) -> Retriever:
        return VectorRetriever(index, top_k=5)

    @pytest.fixture
    def empty_retriever(self) -> Retriever:
        return VectorRetriever(VectorStoreIndex([], embed_model=MODEL))
