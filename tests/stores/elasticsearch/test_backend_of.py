"""Whatever a user has in Elasticsearch gets the right backend."""

import pytest
from elasticsearch import AsyncElasticsearch
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.vector_stores.elasticsearch import base

from llama_retrieval_ext.stores.elasticsearch import llama_index_store
from llama_retrieval_ext.stores.elasticsearch import store as own_store
from llama_retrieval_ext.stores.elasticsearch.llama_index_store import (
    LlamaIndexElasticsearchBackend,
)
from llama_retrieval_ext.stores.elasticsearch.store import (
    ElasticsearchBackend,
    ElasticsearchVectorStore,
)
from llama_retrieval_ext.stores.open import backend_for


def test_our_store_gets_the_exact_backend(store: ElasticsearchVectorStore) -> None:
    assert isinstance(backend_for(store), ElasticsearchBackend)


async def test_llama_indexes_store_gets_one_that_leaves_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nest_asyncio.apply", lambda: None)
    client = AsyncElasticsearch("http://127.0.0.1:9", api_key="hunter2")
    store = base.ElasticsearchStore("docs", es_client=client)
    backend = backend_for(store)
    await client.close()
    assert isinstance(backend, LlamaIndexElasticsearchBackend)
    assert backend.describe()["url"] == "http://127.0.0.1:9"
    assert "hunter2" not in str(backend.describe())


def test_another_store_is_none_of_ours() -> None:
    assert llama_index_store.backend_of(SimpleVectorStore()) is None
    assert own_store.backend_of(SimpleVectorStore()) is None
