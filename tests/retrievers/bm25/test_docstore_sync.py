"""A retriever over a docstore follows its changes."""

import copy
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.simple import SimpleVectorStore

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.retrievers.bm25.docstore_sync import DocstoreFollower, DocstoreLimits
from llama_retrieval_ext.retrievers.bm25.index import KeywordIndex
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.cases import cases


class CountingDocstore(SimpleDocumentStore):
    """Counts how often it is read from beginning to end, and which nodes are requested."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = 0
        self.requests: list[str] = []

    @property
    def docs(self) -> dict[str, BaseNode]:
        self.readings += 1
        return super().docs

    def get_document(self, doc_id: str, raise_error: bool = True) -> BaseNode | None:
        self.requests.append(doc_id)
        return super().get_document(doc_id, raise_error)


def _nodes(**texts: str) -> list[TextNode]:
    return [TextNode(id_=node_id, text=text) for node_id, text in texts.items()]


@pytest.fixture
def docstore() -> CountingDocstore:
    store = CountingDocstore()
    store.add_documents(_nodes(a="apple", b="bread", c="cherry", d="date"))
    return store


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def _follower(
    docstore: SimpleDocumentStore, cache_ttl_s: float | None, clock: Clock
) -> tuple[DocstoreFollower, Callable[[str], list[str]]]:
    index = KeywordIndex(Tokenizer())
    follower = DocstoreFollower(docstore, index, limits=DocstoreLimits(cache_ttl_s), clock=clock)

    def search(text: str) -> list[str]:
        follower.refresh_if_due()
        return [each.node_id for each in index.search(text, top_k=9, condition=None)]

    return follower, search


def test_a_change_is_seen_after_the_cache_time_and_not_before(docstore: CountingDocstore) -> None:
    clock = Clock()
    _, search = _follower(docstore, 60.0, clock)
    assert search("apple") == ["a"]
    docstore.add_documents(_nodes(e="apple"))
    clock.seconds = 59.9
    assert search("apple") == ["a"]
    clock.seconds = 60.0
    assert search("apple") == ["a", "e"]


def test_only_changed_nodes_are_read_again(docstore: CountingDocstore) -> None:
    retriever = BM25Retriever.from_docstore(docstore, cache_ttl_s=0)
    assert (docstore.readings, docstore.requests) == (1, [])
    retriever.retrieve("apple")
    docstore.add_documents(_nodes(b="apple"))
    assert node_ids(retriever.retrieve("apple")) == ["a", "b"]
    assert retriever.retrieve("bread") == []
    assert docstore.readings == 1
    assert "b" in docstore.requests
    assert "a" not in docstore.requests


def test_a_change_of_metadata_alone_is_seen(docstore: CountingDocstore) -> None:
    retriever = BM25Retriever.from_docstore(docstore, cache_ttl_s=0)
    docstore.add_documents([TextNode(id_="b", text="bread", metadata={"kind": "rye"})])
    assert node_ids(retriever.retrieve("rye")) == ["b"]


@cases("deleted", ["x", "y", "z"])
def test_the_deletion_of_one_of_several_equal_nodes_is_seen(
    docstore: CountingDocstore, deleted: str
) -> None:
    docstore.add_documents(_nodes(x="same", y="same", z="same"))
    retriever = BM25Retriever.from_docstore(docstore, cache_ttl_s=0)
    assert node_ids(retriever.retrieve("same")) == ["x", "y", "z"]
    docstore.delete_document(deleted)
    assert deleted not in node_ids(retriever.retrieve("same"))
    assert len(retriever.retrieve("same")) == 2


def test_hashes_without_nodes_are_ignored(docstore: CountingDocstore) -> None:
    docstore.set_document_hash("whole-document", "hash")
    retriever = BM25Retriever.from_docstore(docstore, cache_ttl_s=0)
    docstore.set_document_hash("other-document", "hash")
    docstore.set_document_hash("a", "another hash")
    assert node_ids(retriever.retrieve("apple")) == ["a"]


def test_a_docstore_without_hashes_is_followed() -> None:
    nodes = {node.node_id: node for node in _nodes(a="apple", b="bread")}
    foreign: Any = _Foreign(nodes)
    retriever = BM25Retriever.from_docstore(foreign, cache_ttl_s=0)
    nodes["c"] = _nodes(c="apple")[0]
    del nodes["b"]
    assert node_ids(retriever.retrieve("apple")) == ["a", "c"]
    assert retriever.retrieve("bread") == []


class _Foreign:
    """A docstore that is not built on a key-value store."""

    def __init__(self, docs: dict[str, TextNode]) -> None:
        self.docs = docs

    def get_nodes(self, node_ids: list[str], raise_error: bool) -> list[TextNode]:
        return [self.docs[node_id] for node_id in node_ids if node_id in self.docs]


def test_more_nodes_than_max_chunks_are_refused(docstore: CountingDocstore) -> None:
    with pytest.raises(ConfigurationError, match="4 nodes and max_chunks is 3"):
        BM25Retriever.from_docstore(docstore, max_chunks=3)
    retriever = BM25Retriever.from_docstore(docstore, max_chunks=4, cache_ttl_s=0)
    docstore.delete_document("d")
    docstore.add_documents(_nodes(e="eclair"))
    assert node_ids(retriever.retrieve("eclair")) == ["e"]


def test_a_docstore_that_outgrows_max_chunks_degrades_answers_and_gives_the_reason(
    docstore: CountingDocstore,
) -> None:
    retriever = BM25Retriever.from_docstore(docstore, max_chunks=4, cache_ttl_s=0)
    docstore.add_documents(_nodes(e="eclair apple", a="apple pie"))
    docstore.delete_document("b")
    docstore.add_documents(_nodes(f="fig"))
    for _ in range(2):
        result = retriever.search("apple bread pie")
        assert node_ids(result.hits) == ["a"]  # as it is now; what is gone is not found
        (degraded,) = result.degraded
        assert "5 nodes and max_chunks is 4" in degraded.reason
        assert "higher max_chunks" in degraded.reason
    readings = len(docstore.requests), docstore.readings
    retriever.retrieve("apple")
    assert (len(docstore.requests), docstore.readings) == readings  # nothing has changed
    with pytest.raises(ConfigurationError, match="5 nodes and max_chunks is 4"):
        retriever.refresh()
    docstore.delete_document("d")
    result = retriever.search("apple")
    assert node_ids(result.hits) == ["a", "e"]
    assert not result.degraded


def test_a_refresh_that_failed_is_repeated(docstore: CountingDocstore) -> None:
    class Unreachable(CountingDocstore):
        @property
        def docs(self) -> dict[str, BaseNode]:
            if reachable:
                return super().docs
            raise ConnectionError("no route to host")

    reachable: list[bool] = []
    store = Unreachable()
    store.add_documents(_nodes(a="apple"))
    _, search = _follower(store, None, Clock())
    with pytest.raises(ConnectionError):
        search("apple")
    reachable.append(True)
    assert search("apple") == ["a"]


def test_a_query_does_not_wait_for_a_refresh_in_another_thread(docstore: CountingDocstore) -> None:
    class Slow(CountingDocstore):
        @property
        def docs(self) -> dict[str, BaseNode]:
            if self.readings:
                begun.set()
                assert go_on.wait(10)
            return super().docs

    begun, go_on, clock = threading.Event(), threading.Event(), Clock()
    store = Slow()
    store.add_documents(_nodes(a="apple"))
    _, search = _follower(store, 60.0, clock)
    assert search("apple") == ["a"]
    store.add_documents(_nodes(b="apple", c="apple", d="apple"))
    clock.seconds = 61.0
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(search, "apple")
        assert begun.wait(10)
        assert search("apple") == ["a"]
        go_on.set()
    assert looking.result() == ["a", "b", "c", "d"] == search("apple")
    assert store.readings == 2


def test_a_retriever_over_a_docstore_refuses_add_and_delete(docstore: CountingDocstore) -> None:
    retriever = BM25Retriever.from_docstore(docstore)
    with pytest.raises(ConfigurationError, match="follows a docstore"):
        retriever.add(_nodes(e="eclair"))
    with pytest.raises(ConfigurationError, match="refresh"):
        retriever.delete(["a"])


def test_refresh_sees_changes_immediately_and_is_a_no_op_without_a_docstore(
    docstore: CountingDocstore,
) -> None:
    retriever = BM25Retriever.from_docstore(docstore, cache_ttl_s=None)
    docstore.delete_document("a")
    assert node_ids(retriever.retrieve("apple")) == ["a"]
    retriever.refresh()
    assert retriever.retrieve("apple") == []
    plain = BM25Retriever(_nodes(a="apple"))
    plain.refresh()
    assert node_ids(plain.retrieve("apple")) == ["a"]


@cases(
    ("cache_ttl_s", "max_chunks", "says"),
    [(-1.0, None, "cache_ttl_s"), (float("nan"), None, "cache_ttl_s"), (1.0, 0, "max_chunks")],
)
def test_cache_time_and_max_chunks_out_of_range_are_refused(
    docstore: CountingDocstore, cache_ttl_s: float, max_chunks: int | None, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        BM25Retriever.from_docstore(docstore, cache_ttl_s=cache_ttl_s, max_chunks=max_chunks)


def test_a_loaded_retriever_follows_the_docstore_with_its_stored_limits(
    docstore: CountingDocstore, tmp_path: Any
) -> None:
    BM25Retriever.from_docstore(docstore, cache_ttl_s=0, max_chunks=4).persist(tmp_path)
    BM25Retriever.from_persist_dir(tmp_path).persist(tmp_path)
    docstore.delete_document("a")
    docstore.add_documents(_nodes(e="apple"))
    docstore.requests.clear()
    loaded = BM25Retriever.from_persist_dir(tmp_path, docstore=docstore)
    assert node_ids(loaded.retrieve("apple")) == ["e"]
    assert "b" not in docstore.requests  # it has not changed
    assert docstore.readings == 1
    docstore.add_documents(_nodes(f="fig"))
    assert "max_chunks is 4" in loaded.search("apple").degraded[0].reason


def test_a_retriever_loaded_without_its_docstore_has_the_nodes_of_that_time(
    docstore: CountingDocstore, tmp_path: Any
) -> None:
    BM25Retriever.from_docstore(docstore).persist(tmp_path)
    loaded = BM25Retriever.from_persist_dir(tmp_path)
    docstore.delete_document("a")
    assert node_ids(loaded.retrieve("apple")) == ["a"]
    loaded.add(_nodes(e="apple"))
    assert node_ids(loaded.retrieve("apple")) == ["a", "e"]


def test_a_retriever_over_a_docstore_can_be_pickled_and_still_follows_it(
    docstore: CountingDocstore,
) -> None:
    twin = copy.deepcopy(BM25Retriever.from_docstore(docstore, cache_ttl_s=0))
    own_docstore = twin._follower._docstore  # type: ignore[union-attr]
    assert isinstance(own_docstore, CountingDocstore)
    assert own_docstore is not docstore
    own_docstore.add_documents([TextNode(id_="f", text="figs")])
    assert node_ids(twin.retrieve("figs")) == ["f"]
    again = pickle.loads(pickle.dumps(twin))
    assert node_ids(again.retrieve("figs")) == ["f"]


def test_an_index_that_keeps_its_nodes_in_its_vector_store_is_refused() -> None:
    class StoreWithText(SimpleVectorStore):
        stores_text: bool = True

    index = VectorStoreIndex.from_vector_store(StoreWithText(), embed_model=MockEmbedding(2))
    with pytest.raises(ConfigurationError, match="docstore is empty"):
        BM25Retriever.from_index(index)
