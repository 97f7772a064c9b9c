"""LlamaIndex's own `MilvusVectorStore`, behind our backend: exact filters, raw scores."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator
from llama_index.vector_stores.milvus import MilvusVectorStore
from llama_index.vector_stores.milvus.utils import BM25BuiltInFunction

from llama_retrieval_ext import Retriever, VectorRetriever
from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.filters import Compare, Condition, matches
from llama_retrieval_ext.stores.encoding.vectors import ScoreRange
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.milvus.llama_index_store import LlamaIndexMilvusBackend
from llama_retrieval_ext.testing import BackendContract, FakeEmbedding, sample_nodes
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from tests.stores.milvus.hard_metadata import ODD, PLAIN, is_plain
from tests.stores.odd_metadata import examples

pytestmark = pytest.mark.slow

MODEL = FakeEmbedding()


def store_of_llama_index(path: Path, dim: int, **options: Any) -> MilvusVectorStore:
    return MilvusVectorStore(uri=f"{path}/li.db", dim=dim, use_async_client=False, **options)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> LlamaIndexMilvusBackend:
    dim = len(MODEL.get_query_embedding("a"))
    store = store_of_llama_index(tmp_path_factory.mktemp("lite"), dim, similarity_metric="COSINE")
    store.add([*sample_nodes(MODEL)])
    return LlamaIndexMilvusBackend(store)


class TestContract(BackendContract):
    @pytest.fixture
    def backend(self, filled: LlamaIndexMilvusBackend) -> LlamaIndexMilvusBackend:
        return filled


class TestVectorRetriever(IsolationContract):
    @pytest.fixture
    def retriever(self, filled: LlamaIndexMilvusBackend) -> Retriever:
        return VectorRetriever(filled, embed_model=MODEL)


@pytest.fixture(scope="module")
def random_corpus(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[LlamaIndexMilvusBackend, list[TextNode]]:
    nodes = PLAIN.nodes(100, seed=11, kept=is_plain)
    store = store_of_llama_index(tmp_path_factory.mktemp("lite"), 2)
    store.add([*nodes])
    return LlamaIndexMilvusBackend(store), nodes


@examples(100)
@given(condition=ODD.conditions)
def test_searches_find_exactly_the_nodes_that_match(
    random_corpus: tuple[LlamaIndexMilvusBackend, list[TextNode]], condition: Condition
) -> None:
    backend, nodes = random_corpus
    found = backend.dense([1.0, 0.0], Search(200, condition)).function()
    expected = {node.node_id for node in nodes if matches(condition, node.metadata)}
    assert {each.node_id for each in found} == expected


def test_few_matches_among_many_nodes_are_found(tmp_path: Path) -> None:
    store = store_of_llama_index(tmp_path, 2)
    nodes = [
        TextNode(id_=f"n{i:04}", embedding=[1.0, i], metadata={"tags": ["a"] if i % 500 else ["b"]})
        for i in range(1000)
    ]
    store.add([*nodes])
    condition = Compare("tags", FilterOperator.CONTAINS, "b")
    found = LlamaIndexMilvusBackend(store).dense([1.0, 0.0], Search(2, condition)).function()
    assert {each.node_id for each in found} == {"n0000", "n0500"}


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("IP", ScoreRange("dot")),
        ("L2", ScoreRange("negative_distance", None, 0.0)),
        ("COSINE", ScoreRange("cosine", -1.0, 1.0)),
    ],
)
def test_the_score_is_the_metrics_and_higher_is_better(
    tmp_path: Path, metric: str, expected: ScoreRange
) -> None:
    store = store_of_llama_index(tmp_path, 2, similarity_metric=metric)
    store.add([TextNode(id_=str(i), embedding=[1.0, float(i)]) for i in range(3)])
    backend = LlamaIndexMilvusBackend(store)
    assert (backend.features.dense, backend.features.most_hits) == (expected, 16_384)
    found = backend.dense([1.0, 0.0], Search(3)).function()
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    if metric != "IP":
        assert found[0].node_id == "0"


def test_a_reopened_collection_is_loaded(tmp_path: Path) -> None:
    store = store_of_llama_index(tmp_path, 2)
    store.add([TextNode(id_="a", embedding=[1.0, 0.0])])
    store.client.release_collection(store.collection_name)
    found = LlamaIndexMilvusBackend(store).dense([1.0, 0.0], Search(1)).function()
    assert [each.node_id for each in found] == ["a"]


def test_keywords_are_found_where_the_store_has_them(tmp_path: Path) -> None:
    store = store_of_llama_index(
        tmp_path, 2, enable_sparse=True, sparse_embedding_function=BM25BuiltInFunction()
    )
    store.add([TextNode(id_=text, text=text, embedding=[1.0, 0.0]) for text in ("leave", "lunch")])
    backend = LlamaIndexMilvusBackend(store)
    assert backend.features.keyword == ScoreRange("bm25", 0.0)
    found = backend.keyword("lunch time", Search(5)).function()
    assert [each.node_id for each in found] == ["lunch"]
    assert found[0].score > 0
    assert found[0].node.get_content() == "lunch"


def test_keywords_are_refused_where_there_are_none(filled: LlamaIndexMilvusBackend) -> None:
    with pytest.raises(UnsupportedModeError, match="enable_sparse"):
        filled.keyword("lunch", Search(1))
