"""LlamaIndex's own stores from settings: what is set is what they have; errors say why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest
from elasticsearch import AsyncElasticsearch
from llama_index.core import Document
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext import KnowledgeBase, Query, Scope, VectorRetriever, open_store
from llama_retrieval_ext.config import Registry
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores import GenericBackend
from llama_retrieval_ext.stores.llama_index import llama_index_store, without_secrets
from llama_retrieval_ext.stores.open import Storage
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases
from tests.servers.elasticsearch import elasticsearch_url
from tests.stores.milvus.test_params import HNSW, IVF_PQ

__all__ = ["elasticsearch_url"]

pytestmark = pytest.mark.slow

MODEL = FakeEmbedding(dim=16)


def dimension() -> int:
    return 8


def registry_of(url: str, **settings: Any) -> Registry:
    kb = KnowledgeBase.open(url, embed_model=FakeEmbedding(), **settings)
    kb.add([Document(text="annual leave")], show_progress=False)
    registry = Registry()
    registry.bind(kb)
    return registry


def test_llama_dense_opens_llama_index_store_with_the_index_of_milvus(tmp_path: Path) -> None:
    registry = registry_of("embedded::memory:")
    params = {"uri": f"{tmp_path}/li.db", "index_params": HNSW}
    found: Any = registry.get_retriever("llama_dense", store_type="milvus", store_params=params)
    store = found.backend.store
    index = store.client.describe_index(store.collection_name, store.embedding_field)
    assert (index["index_type"], index["metric_type"]) == ("HNSW", "COSINE")
    assert store.dim == len(FakeEmbedding().get_query_embedding("any"))
    for other in ({"index_type": "FLAT"}, {"metric_type": "IP"}):
        with pytest.raises(ConfigurationError, match=f"was made with {next(iter(other))}="):
            llama_index_store(
                "milvus", {**params, "index_params": other}, dimension=lambda: store.dim
            )
    registry.close()


def test_llama_dense_says_that_milvus_lite_does_not_have_an_index(tmp_path: Path) -> None:
    registry = registry_of("embedded::memory:")
    with pytest.raises(ConfigurationError, match="Milvus Lite has no index_type 'IVF_PQ'"):
        registry.get_retriever(
            "llama_dense",
            store_type="milvus",
            store_params={"uri": str(tmp_path / "a.db"), "index_params": IVF_PQ},
        )


def test_llama_dense_opens_a_store_of_any_engine_by_its_url(tmp_path: Path) -> None:
    registry, model = registry_of("embedded::memory:"), FakeEmbedding()
    url = f"milvus:{tmp_path}/kb.db"
    with open_store(url, store_params={"index_params": HNSW}) as store:
        store.add([TextNode(text="sick leave", embedding=model.get_text_embedding("leave"))])
    params = {"url": url, "index_params": HNSW}
    retriever = registry.get_retriever("llama_dense", store_params=params)
    assert [hit.text for hit in retriever.retrieve("leave")] == ["sick leave"]
    with pytest.raises(ConfigurationError, match="'qdrant' is not the engine of 'milvus:"):
        registry.get_retriever("llama_dense", store_type="qdrant", store_params={"url": url})
    registry.close()


def test_settings_without_an_address_are_those_of_the_knowledge_base(tmp_path: Path) -> None:
    params: dict[str, object] = {"index_params": HNSW}
    registry = registry_of(f"milvus:{tmp_path}/kb.db", store_params=params)
    found = registry.get_retriever("llama_dense", store_type="milvus", store_params=params)
    assert [hit.text for hit in found.retrieve("annual leave")] == ["annual leave"]
    with pytest.raises(ConfigurationError, match="was made with index_params="):
        registry.get_retriever(
            "llama_dense",
            store_type="milvus",
            store_params={"index_params": {"index_type": "FLAT"}},
        )
    registry.close()


@pytest.mark.parametrize(
    ("store_type", "settings", "reason"),
    [
        ("milvus", {"bogus": 1}, "no setting 'bogus'"),
        ("milvus", {"index_params": HNSW, "similarity_metric": "l2"}, "leave one out"),
        ("qdrant", {"collection": "a"}, "'collection'; write collection_name"),
        ("es", {"index_name": "a", "body": {"mappings": {}}}, "'mappings'; write metadata_mapp"),
        ("es", {"index_name": "a"}, "ElasticsearchStore refuses the settings index_name: .*url"),
    ],
    ids=str,
)
def test_settings_that_a_class_would_ignore_or_refuse_are_named_with_the_reason(
    store_type: Any, settings: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nest_asyncio.apply", lambda: None)
    with pytest.raises(ConfigurationError, match=reason):
        llama_index_store(store_type, settings, dimension=dimension)


def test_a_reason_never_holds_a_secret() -> None:
    settings = {"uri": "http://root:hunter2@127.0.0.1:1", "token": "abcdef", "timeout": 1}
    with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1:1") as caught:
        llama_index_store("milvus", settings, dimension=dimension)
    error = caught.value
    assert error.__cause__ is None
    assert error.__suppress_context__
    assert "hunter2" not in str(error)


def test_a_value_of_the_environment_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILVUS_ADDRESS", "http://127.0.0.1:1/hunter2")
    registry = registry_of("embedded::memory:")
    params = {"uri": {"env": "MILVUS_ADDRESS"}, "timeout": 1}
    with pytest.raises(ConfigurationError, match="refuses the settings timeout, uri") as caught:
        registry.get_retriever("llama_dense", store_type="milvus", store_params=params)
    assert "hunter2" not in str(caught.value)


@cases(
    "settings",
    [
        {"client_kwargs": {"headers": {"x": "hunter2"}}},
        {"api_key": "hunter2"},
        {"uri": "https://root:hunter2@db"},
    ],
)
def test_secrets_of_settings_are_masked(settings: dict[str, Any]) -> None:
    assert without_secrets("hunter2 is wrong for db", settings) == "*** is wrong for db"


async def test_an_elasticsearch_store_creates_its_index_with_the_settings_of_a_body(
    elasticsearch_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # LlamaIndex's class patches asyncio, also for the other tests.
    monkeypatch.setattr("nest_asyncio.apply", lambda: None)
    settings = {
        "index_name": "li-settings",
        "es_client": AsyncElasticsearch(elasticsearch_url),
        "body": {"settings": {"index": {"number_of_shards": 2}, "number_of_replicas": 0}},
    }
    store: Any = llama_index_store("es", settings, dimension=dimension)
    await store.async_add([TextNode(text="leave", embedding=[1.0, 0.0])])
    found = await store.client.indices.get_settings(index="li-settings", flat_settings=True)
    assert found["li-settings"]["settings"]["index.number_of_shards"] == "2"
    other = {**settings, "body": {"settings": {"number_of_shards": 3}}}
    with pytest.raises(ConfigurationError, match=r"number_of_shards='2', not 3"):
        llama_index_store("es", other, dimension=dimension)
    await store.client.indices.delete(index="li-settings")
    await store.client.close()


def principal_nodes() -> list[TextNode]:
    """Nodes that name nobody, some principals, or what is no list of names."""
    allowed = {
        "open": None,
        "none": [],
        "hr": ["group:hr"],
        "it": ["group:it", "x'\\y"],
        "no list": "group:hr",
    }
    return [
        TextNode(
            id_=str(uuid5(NAMESPACE_OID, text)),
            text=text,
            metadata={"tenant_id": "acme", **({} if names is None else {"allowed": names})},
            embedding=MODEL.get_text_embedding(text),
        )
        for text, names in allowed.items()
    ]


def check_principals(storage: Storage) -> None:
    """Fail unless each scope sees its nodes of `principal_nodes`, and only those."""
    retriever = VectorRetriever(storage, embed_model=MODEL, top_k=10)
    for principals, expected in (
        (["group:hr"], {"open", "none", "hr"}),
        (["x'\\y", *map(str, range(199))], {"open", "none", "it"}),
        ([], {"open", "none"}),
    ):
        found = retriever.retrieve(Query("q", scope=Scope("acme", principals=principals)))
        assert {hit.node.get_content() for hit in found} == expected


def _qdrant(_: Path) -> BasePydanticVectorStore:
    client = pytest.importorskip("qdrant_client").QdrantClient(":memory:")
    settings = {"collection_name": "nodes", "client": client}
    return llama_index_store("qdrant", settings, dimension=dimension)


def _milvus(folder: Path) -> BasePydanticVectorStore:
    return llama_index_store("milvus", {"uri": f"{folder}/m.db"}, dimension=lambda: 16)


@pytest.mark.parametrize("make", [lambda _: SimpleVectorStore(), _qdrant, _milvus])
@pytest.mark.filterwarnings("ignore:Payload indexes have no effect")
def test_a_store_of_llama_index_keeps_to_the_principals_of_a_scope(
    make: Callable[[Path], BasePydanticVectorStore], tmp_path: Path
) -> None:
    nodes, store = principal_nodes(), make(tmp_path)
    store.add([*nodes])
    by_id = {node.node_id: node for node in nodes}
    check_principals(store if store.stores_text else GenericBackend(store, lookup=lambda _: by_id))
