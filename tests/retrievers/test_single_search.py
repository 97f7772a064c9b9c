"""Retrievers over a store: their contract, and collapsed hits."""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import MMR, RRF, BM25Retriever, Collapse, Query, Retriever, Scope
from llama_retrieval_ext.errors import ScopeViolationError, UnsupportedModeError
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import single_search
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.retrievers.store_retriever import StoreRetriever
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import IsolationContract, RankingContract, RetrieverContract
from llama_retrieval_ext.testing.corpus import ACME, SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fakes import EVERYTHING, FakeBackend, FakeEmbedding
from tests.cases import cases
from tests.searching import Searched

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


@pytest.mark.slow
@pytest.mark.parametrize("place", range(3), ids=["vector", "keyword", "hybrid"])
def test_a_document_with_many_good_passages_leaves_room_for_others(place: int) -> None:
    retriever = retrievers(FakeBackend(NODES), top_k=6, collapse=Collapse())[place]
    found = [hit.node.ref_doc_id for hit in retriever.retrieve(QUERY)]
    assert found[0] == "long"
    assert sorted(str(document) for document in found[1:6]) == ["d0", "d1", "d2", "d3", "d4"]
    assert node_ids(asyncio.run(retriever.aretrieve(QUERY))) == node_ids(retriever.retrieve(QUERY))


@cases("place", range(3))
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


def nodes() -> list[TextNode]:
    """Nodes with ids that every engine of LlamaIndex accepts."""
    texts = [
        "Every employee has 25 days of annual leave.",
        "On sick leave, hand in a note.",
        "Lunch is served at noon.",
    ]
    return [
        TextNode(
            id_=f"00000000-0000-0000-0000-00000000000{number}",
            text=text,
            metadata={"tenant_id": "acme" if number else "globex", "number": number},
        )
        for number, text in enumerate(texts)
    ]


def simple_index() -> VectorStoreIndex:
    return VectorStoreIndex(nodes(), embed_model=MODEL)


def qdrant_index() -> VectorStoreIndex:
    pytest.importorskip("llama_index.vector_stores.qdrant")
    from llama_index.vector_stores.qdrant import QdrantVectorStore  # noqa: PLC0415
    from qdrant_client import QdrantClient  # noqa: PLC0415

    client = QdrantClient(":memory:")
    return with_docstore(QdrantVectorStore("c", client=client, index_doc_id=False))


def milvus_index(folder: Any) -> VectorStoreIndex:
    pytest.importorskip("llama_index.vector_stores.milvus")
    from llama_index.vector_stores.milvus import MilvusVectorStore  # noqa: PLC0415

    store = MilvusVectorStore(
        uri=f"{folder}/milvus.db", dim=MODEL.dim, similarity_metric="COSINE", use_async_client=False
    )
    return with_docstore(store)


def with_docstore(store: Any) -> VectorStoreIndex:
    context = StorageContext.from_defaults(vector_store=store, docstore=SimpleDocumentStore())
    return VectorStoreIndex(
        nodes(), storage_context=context, embed_model=MODEL, store_nodes_override=True
    )


ENGINES = ["simple", "qdrant", pytest.param("milvus", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=ENGINES)
def index(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> VectorStoreIndex:
    """An index that nobody writes to."""
    made: dict[str, Callable[[], VectorStoreIndex]] = {
        "simple": simple_index,
        "qdrant": qdrant_index,
        "milvus": lambda: milvus_index(tmp_path_factory.mktemp("milvus")),
    }
    return made[request.param]()


def test_keyword_hits_are_those_of_bm25_over_the_docstore(
    index: VectorStoreIndex, searched: Searched
) -> None:
    retriever = KeywordRetriever(index)
    narrow = MetadataFilters(filters=[MetadataFilter(key="number", value=1)])
    for query in (Query(QUERY), Query(QUERY, filters=narrow), Query(QUERY, scope=ACME)):
        found = searched(retriever, query)
        expected = BM25Retriever(nodes()).search(query)
        assert found
        assert [(hit.node_id, hit.score) for hit in found] == [
            (hit.node_id, hit.score) for hit in expected
        ]
        assert {hit.source for hit in found} == {"keyword"}


def test_hybrid_hits_have_the_share_of_both_searches(
    index: VectorStoreIndex, searched: Searched
) -> None:
    result = searched(HybridRetriever(index), QUERY)
    assert not result.degraded
    assert result[0].node_id == nodes()[0].node_id
    assert {part.leg for part in result[0].contributions} == {"vector", "keyword"}
    assert len(result) == len(nodes())
    scoped = searched(HybridRetriever(index).for_scope(ACME), QUERY)
    assert {hit.node.metadata["tenant_id"] for hit in scoped} == {"acme"}


def test_the_trace_says_that_keywords_are_searched_in_memory(index: VectorStoreIndex) -> None:
    for retriever in (KeywordRetriever(index), HybridRetriever(index)):
        assert "BM25 in memory, over the docstore" in str(retriever.search(QUERY).trace)
        assert "BM25 in memory, over the docstore" in str(retriever.explain(QUERY).trace)


def test_an_index_can_be_the_store_for_keywords_of_another_store(index: VectorStoreIndex) -> None:
    retriever = HybridRetriever(simple_index(), keyword_store=index, embed_model=MODEL)
    assert node_ids(retriever.retrieve(QUERY)) == node_ids(HybridRetriever(index).retrieve(QUERY))


def test_changes_of_the_docstore_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_search, "_CACHE_TTL_S", 0.0)
    index = simple_index()
    retriever = KeywordRetriever(index)
    assert retriever.retrieve("zeppelin") == []
    index.insert(Document(id_="late", text="A zeppelin."))
    assert [hit.node.ref_doc_id for hit in retriever.retrieve("zeppelin")] == ["late"]


def test_deleted_documents_are_not_found_though_the_docstore_keeps_their_texts() -> None:
    index = VectorStoreIndex.from_documents(
        [Document(id_=f"d{n}", text="annual leave") for n in range(6)], embed_model=MODEL
    )
    retriever = KeywordRetriever(index, top_k=2)
    for number in range(4):
        index.delete_ref_doc(f"d{number}")  # leaves the docstore as it is
    assert sorted(hit.node.ref_doc_id or "" for hit in retriever.retrieve("leave")) == ["d4", "d5"]
    assert len(index.docstore.docs) == 6


def test_an_index_that_is_filled_later_is_searched() -> None:
    index = VectorStoreIndex([], embed_model=MODEL)
    retriever = HybridRetriever(index)
    index.insert_nodes(nodes())
    assert node_ids(retriever.retrieve(QUERY))[0] == nodes()[0].node_id


@pytest.mark.parametrize("engine", ["qdrant", pytest.param("milvus", marks=pytest.mark.slow)])
def test_an_empty_docstore_is_none_and_the_texts_are_read_from_the_store(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_search, "_CACHE_TTL_S", 0.0)
    filled = milvus_index(tmp_path) if engine == "milvus" else qdrant_index()
    store = filled.vector_store
    stock = VectorStoreIndex.from_vector_store(store, embed_model=MODEL)
    texts = ["Every employee has annual leave.", "Error E4012 means that a receipt is missing."]
    for text in texts:  # as `from_documents` does, which leaves hashes in the docstore
        stock.insert(Document(text=text, metadata={"number": 7}))
    assert stock.docstore.get_all_document_hashes()
    assert not stock.docstore.docs
    for source in (stock, store):
        found = KeywordRetriever(source).search("E4012")
        assert [hit.text for hit in found] == [texts[1]]
        assert found[0].metadata["number"] == 7
        assert "over the store" in str(found.trace)
    (hit,) = HybridRetriever(stock, top_k=1).search("E4012")
    assert {part.leg for part in hit.contributions} == {"vector", "keyword"}
    retriever = KeywordRetriever(stock)
    assert retriever.search("crane").hints == ("no passage has a word of the query",)
    stock.insert(Document(text="The crane came late."))
    assert [hit.text for hit in retriever.retrieve("crane")] == ["The crane came late."]


class Texts(SimpleVectorStore):
    """A store of LlamaIndex that keeps texts, and cannot be read as a whole."""

    stores_text: bool = True


@cases("kind", [KeywordRetriever, HybridRetriever])
def test_a_store_without_keyword_search_and_without_texts_is_refused(
    kind: Callable[..., object],
) -> None:
    context = StorageContext.from_defaults(vector_store=Texts())
    filled = VectorStoreIndex.from_documents(
        [Document(text="leave")], storage_context=context, embed_model=MODEL
    )
    assert filled.docstore.get_all_document_hashes()
    stock = VectorStoreIndex.from_vector_store(filled.vector_store, embed_model=MODEL)
    for storage in (filled, filled.vector_store, stock):
        with pytest.raises(UnsupportedModeError, match="no docstore with its texts"):
            kind(storage)


def test_stages_find_the_embeddings_of_hits_of_bm25_in_memory(searched: Searched) -> None:
    result = searched(KeywordRetriever(simple_index()) >> MMR(0.5), "leave")
    assert {part.leg for hit in result for part in hit.contributions} == {"keyword", "MMR"}
    assert result.degraded == ()


def test_hits_of_bm25_in_memory_are_collapsed() -> None:
    retriever = KeywordRetriever(simple_index(), top_k=2, collapse=Collapse(1, by="tenant_id"))
    hits = retriever.retrieve("leave")
    assert sorted(hit.node.metadata["tenant_id"] for hit in hits) == ["acme", "globex"]


@cases("leg", ["vector", "keyword"])
def test_a_setting_of_a_search_of_a_clone_does_not_change_the_original(leg: str) -> None:
    original = HybridRetriever(simple_index())
    before = node_ids(getattr(original, leg).retrieve("leave"))
    clone = original.clone()
    getattr(clone, leg).filters = MetadataFilters(filters=[MetadataFilter(key="number", value=1)])
    assert node_ids(getattr(clone, leg).retrieve("leave")) == [nodes()[1].node_id]
    assert node_ids(getattr(original, leg).retrieve("leave")) == before


def test_many_queries_and_clones_index_the_docstore_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    from_docstore = BM25Retriever.from_docstore

    def counted(docstore: Any, **options: Any) -> BM25Retriever:
        opened.append(docstore)
        return from_docstore(docstore, **options)

    monkeypatch.setattr(BM25Retriever, "from_docstore", counted)
    retriever = HybridRetriever(simple_index())
    retriever.retrieve_many(SAMPLE_QUERIES)
    retriever.clone().retrieve_many(SAMPLE_QUERIES)
    assert len(opened) == 1
