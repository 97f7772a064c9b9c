"""URLs, stores, indexes and backends, and the backend that each of them has."""

import re
from pathlib import Path

import pytest
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.schema import IndexNode, TextNode
from llama_index.core.storage.storage_context import StorageContext

from llama_retrieval_ext import KeywordRetriever
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores import EmbeddedVectorStore, GenericBackend
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.stores.open import backend_for, open_store, source_of
from llama_retrieval_ext.testing import FakeBackend, FakeEmbedding
from tests.cases import cases
from tests.knowledge_base.engines import ENGINES, place, start
from tests.servers.elasticsearch import elasticsearch_url

__all__ = ["elasticsearch_url"]

NODE = TextNode(id_="n", text="leave", embedding=[1.0, 0.0])


def test_a_url_opens_a_directory_and_what_was_added_is_there_again(tmp_path: Path) -> None:
    for _ in range(2):
        store = open_store(f"embedded:{tmp_path / 'kb'}")
        assert isinstance(store, EmbeddedVectorStore)
        with store:
            store.add([NODE])
            assert store.count() == 1


@cases("url", ["", "embedded:", "kb", "sqlite:./kb"])
def test_a_url_without_an_engine_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a store URL\. A URL begins"):
        open_store(url)


@cases("url", ["embedded://./kb", "qdrant://./kb", "milvus:///tmp/kb.db"])
def test_a_folder_behind_two_slashes_is_refused(url: str) -> None:
    scheme, _, folder = url.partition("://")
    with pytest.raises(ConfigurationError, match=rf"write {scheme}:{folder}$"):
        open_store(url)


@cases(
    ("url", "instead"),
    [
        ("http://localhost:6333", "qdrant://localhost:6333/NAME"),
        ("https://db.example:6333/collections", "qdrants://db.example:6333/NAME"),
        ("http://localhost:9200", "elasticsearch://localhost:9200/NAME"),
        ("http://localhost:19530", "milvus://localhost:19530/NAME"),
    ],
)
def test_a_web_address_of_an_engine_gets_its_url(url: str, instead: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"did you mean {instead}? A URL")):
        open_store(url)


@cases("url", ["http://localhost:8080", "http://localhost", "http://host:x"])
def test_a_web_address_of_another_port_gets_no_guess(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a store URL\. A URL begins"):
        open_store(url)


def test_the_embedded_engine_has_no_other_parameters() -> None:
    with pytest.raises(
        ConfigurationError, match=r"hnsw_config.* The settings are: vectors, index, min_free_bytes$"
    ):
        open_store("embedded::memory:", store_params={"hnsw_config": {}})


@cases("url", ["embeded:./kb", "./kb"])
def test_a_misspelt_or_missing_engine_is_refused_with_the_right_spelling(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean embedded:\S+\? A URL begins"):
        open_store(url)


def test_a_url_a_store_an_index_and_a_backend_each_have_a_backend(tmp_path: Path) -> None:
    with open_store(f"embedded:{tmp_path}") as store:
        by_url = source_of(f"embedded:{tmp_path}")
        assert isinstance(by_url.backend, EmbeddedVectorStore)
        assert by_url.embed_model is None
        by_url.backend.store.close()
        assert isinstance(source_of(store).backend, EmbeddedVectorStore)
        backend = FakeBackend([])
        assert source_of(backend).backend is backend


def test_an_index_brings_its_model_its_docstore_and_its_objects() -> None:
    model = FakeEmbedding()
    door = IndexNode(id_="door", text="door", index_id="section", obj=TextNode(id_="section"))
    index = VectorStoreIndex([NODE], embed_model=model, objects=[door])
    source = source_of(index)
    assert isinstance(source.backend, GenericBackend)
    assert source.embed_model is model
    assert set(source.objects) == {"section"}


def test_an_index_over_the_embedded_store_uses_its_backend() -> None:
    with EmbeddedVectorStore(":memory:") as store:
        context = StorageContext.from_defaults(vector_store=store)
        index = VectorStoreIndex([NODE], storage_context=context, embed_model=FakeEmbedding())
        assert isinstance(source_of(index).backend, EmbeddedVectorStore)
        assert isinstance(backend_for(store), EmbeddedVectorStore)


@pytest.mark.parametrize("engine", [*ENGINES, "qdrant-server"])
def test_a_retriever_creates_nothing_where_its_url_is_mistyped(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    start(engine, request)
    with place(engine, tmp_path, request) as url:
        for _ in range(2):
            with pytest.raises(
                ConfigurationError, match=r"there is no store at .*; check the URL"
            ) as caught:
                KeywordRetriever(url)
            assert url in str(caught.value)
            assert f"open_store('{url}').add(nodes)" in str(caught.value)
        assert list(tmp_path.iterdir()) == []
        with open_store(url) as store:
            store.add([NODE])
        retriever = KeywordRetriever(url)
        assert [hit.node_id for hit in retriever.retrieve("leave")] == ["n"]
        _close(retriever)


@pytest.mark.parametrize("engine", ["qdrant", "milvus"])
def test_a_collection_that_is_not_in_the_file_does_not_exist(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    start(engine, request)
    with place(engine, tmp_path, request) as url:
        with open_store(url) as store:
            store.add([NODE])
        with pytest.raises(ConfigurationError, match=r"there is no store at .*typo"):
            open_store(f"{url}?collection=typo", must_exist=True)


@pytest.mark.slow
@cases("url", ["embedded::memory:", "qdrant::memory:"])
def test_a_retriever_does_not_read_a_store_that_it_would_make_in_memory(url: str) -> None:
    if url.startswith("qdrant"):
        pytest.importorskip("qdrant_client")
    with pytest.raises(ConfigurationError, match=r"is in memory: .* pass that store"):
        KeywordRetriever(url)


@pytest.mark.parametrize("engine", ["embedded", "qdrant"])
def test_a_folder_that_is_no_store_is_left_as_it_is(engine: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="there is no store at"):
        open_store(f"{engine}:{tmp_path}", must_exist=True)
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_a_store_without_nodes_exists(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    open_store(url).close()
    retriever = KeywordRetriever(url)
    assert retriever.retrieve("leave") == []
    _close(retriever)


def _close(retriever: KeywordRetriever) -> None:
    store = retriever.backend.store
    assert isinstance(store, EngineStore)
    store.close()


def test_a_source_of_another_type_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"expected a URL, .* got 3; .*kb.retriever"):
        source_of(3)  # type: ignore[arg-type]
