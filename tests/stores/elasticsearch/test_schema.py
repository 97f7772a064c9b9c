"""An index and its nodes, and the terms that it indexes: those of the tokenizer as they are."""

import json
import sys
from typing import Any

import pytest
from elasticsearch import Elasticsearch
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)

from llama_retrieval_ext import HybridRetriever, Scope
from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError, StoreFormatError
from llama_retrieval_ext.stores.elasticsearch.client import HttpRequest, Json
from llama_retrieval_ext.stores.elasticsearch.params import IndexParams
from llama_retrieval_ext.stores.elasticsearch.schema import TEXT, indexed_texts
from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore, query_terms
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.stores.engine.records import Record
from llama_retrieval_ext.testing import FakeEmbedding
from llama_retrieval_ext.text import Tokenizer
from tests.cases import cases
from tests.stores.elasticsearch.msearch import Opener
from tests.stores.store_contract import node, query, where

pytestmark = pytest.mark.slow


def test_an_index_that_is_none_of_ours_is_refused_and_stays(
    open_store: Opener, store: ElasticsearchVectorStore
) -> None:
    name = store.index
    with Elasticsearch(store.transport.where) as client:
        client.indices.create(index=name)
        with pytest.raises(StoreFormatError, match="not made by this package"):
            open_store(name)
        with pytest.raises(StoreFormatError, match="not made by this package"):
            store.clear()
        assert client.indices.exists(index=name)
        client.indices.delete(index=name)


def test_an_index_that_somebody_deleted_is_made_anew_with_our_mapping(
    store: ElasticsearchVectorStore,
) -> None:
    store.add([node("a")])
    with Elasticsearch(store.transport.where) as client:
        client.indices.delete(index=store.index)
    assert store.query(VectorStoreQuery(query_embedding=[1.0, 0.0])).ids == []
    store.add([node("b")])
    assert store.query(VectorStoreQuery(query_embedding=[1.0, 0.0])).ids == ["b"]


def test_settings_in_the_form_of_create_index_reach_the_index(open_store: Opener) -> None:
    vector = {
        "type": "dense_vector",
        "dims": 2,
        "similarity": "cosine",
        "index_options": {"type": "int8_hnsw", "m": 8},
    }
    body = {
        "settings": {"index": {"number_of_shards": 2}, "index.refresh_interval": "5s"},
        "mappings": {"properties": {"embedding": vector}},
    }
    store = open_store(store_params={"body": body})
    store.add([node("a")])
    found = store.client.indices.get(index=store.index)[store.index]
    assert found["settings"]["index"]["refresh_interval"] == "5s"
    assert found["settings"]["index"]["number_of_shards"] == "2"
    assert found["settings"]["index"]["number_of_replicas"] == "0"
    assert found["mappings"]["properties"]["vector"]["index_options"]["m"] == 8


@pytest.mark.parametrize(
    ("vector", "reason"),
    [({"similarity": "l2_norm"}, "distance='euclid'"), ({"dims": 3}, "takes 2; leave dims out")],
    ids=str,
)
def test_a_vector_field_that_contradicts_the_store_is_refused(
    open_store: Opener, vector: dict[str, object], reason: str
) -> None:
    field = {"type": "dense_vector", **vector}
    body = {"mappings": {"properties": {"embedding": field}}}
    with pytest.raises((ConfigurationError, DimensionMismatchError), match=reason):
        open_store(store_params={"body": body}).add([node("a")])


CONFIG = StoreConfig(Tokenizer())
EVERY = "".join(map(chr, range(sys.maxunicode + 1)))


@given(text=st.text())
def test_the_whitespace_of_the_engine_parts_the_tokenizers_terms(text: str) -> None:
    joined = indexed_texts(TextNode(text=text), CONFIG)[TEXT]
    assert len(joined.split()) == len(CONFIG.tokenizer.tokens(text))
    terms = query_terms(text, CONFIG.tokenizer, 1)
    assert terms == " ".join(terms.split())


@cases("text", ["x" * 10_000, "中" * 1000, EVERY])
def test_no_term_is_longer_than_the_engine_takes(text: str) -> None:
    assert max(map(len, indexed_texts(TextNode(text=text), CONFIG)[TEXT].split(" "))) <= 255


def test_the_engine_parts_the_terms_as_python_does(store: ElasticsearchVectorStore) -> None:
    terms = indexed_texts(TextNode(text=EVERY), CONFIG)[TEXT].split(" ")
    store.add([TextNode(text="a", embedding=[1.0])])
    for start in range(0, min(len(terms), 60_000), 9_000):  # the engine shows 10,000 at a time
        some = terms[start : start + 9_000]
        body = {"field": "text", "text": " ".join(some)}
        response = store.client.indices.analyze(index=store.index, body=body)
        assert [each["token"] for each in response["tokens"]] == some


def test_a_long_query_is_cut_to_its_first_1024_terms() -> None:
    text = " ".join(f"word{n % 5000}" for n in range(10_000))
    assert len(query_terms(text, CONFIG.tokenizer, 1).split()) == 1024


def test_a_node_that_moves_to_another_tenant_is_there_once(open_store: Opener) -> None:
    store = open_store(store_params={"number_of_shards": 3, "routing": True})
    for tenant in ("acme", "globex", "initech", "umbrella"):
        store.add([node("a", tenant_id=tenant), node(f"of-{tenant}", tenant_id=tenant)])
    assert store.count() == 5
    for tenant in ("acme", "globex", "initech", "umbrella"):
        scope = Scope(tenant)
        search = Search(10, scope.condition, scope)
        found = store.keyword("leave", search).function()
        expected = {f"of-{tenant}"} | ({"a"} if tenant == "umbrella" else set())
        assert {each.node_id for each in found} == expected
    store.delete_nodes(["a", "of-acme"])
    assert store.count() == 3


def test_an_index_that_returns_few_hits_at_once_is_read_whole(open_store: Opener) -> None:
    settings = {"max_result_window": 100}
    store = open_store(store_params={"settings": settings, "routing": True})
    names = [f"n{number:03}" for number in range(250)]
    for tenant in ("acme", "globex"):  # each node moves
        store.add([node(name, tenant_id=tenant) for name in names])
    for opened in (store, open_store(store.index)):
        assert sorted(each.node_id for each in opened.get_nodes()) == names
        hybrid = HybridRetriever(opened, embed_model=FakeEmbedding(dim=2), top_k=50)
        assert len(hybrid.retrieve("leave")) == 50
        with pytest.raises(ConfigurationError, match="returns at most 100 hits at once"):
            opened.query(query(similarity_top_k=101))
    store.delete_nodes(filters=where("tenant_id", "globex"))
    assert store.count() == 0


def test_records_are_read_whole_from_an_index_that_another_process_made(open_store: Opener) -> None:
    settings = {"max_result_window": 100}
    store = open_store(store_params={"settings": settings})
    opened = open_store(store.index)
    store.records().put([Record(f"r{number:03}", "", {}) for number in range(250)])
    assert len(opened.records().find()) == 250


def test_pages_of_large_nodes_have_few(
    store: ElasticsearchVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["x" * 10_000] * 210 + ["x"] * 90
    store.add([TextNode(id_=f"{n:03}", text=text, embedding=[1.0]) for n, text in enumerate(texts)])
    monkeypatch.setattr("llama_retrieval_ext.stores.elasticsearch.schema._PAGE_BYTES", 50_000)
    send, sizes = store.transport.perform, list[int]()

    def watched(request: HttpRequest) -> Json:
        sizes.append(json.loads(request.body or b"{}").get("size", 0))
        return send(request)

    monkeypatch.setattr(store.transport, "perform", watched)
    assert len(store.get_nodes()) == 300
    assert sizes[:4] == [200, 4, 4, 4]
    assert sizes[-1] > 90


def test_a_node_replaced_during_a_deletion_by_filter_is_compared_again(
    store: ElasticsearchVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add([TextNode(id_="a", text="word", embedding=[1.0, 0.0])])
    send = store.transport.perform

    def replacing(request: HttpRequest) -> Json:
        if request.path.endswith("_bulk"):
            monkeypatch.undo()
            other = TextNode(id_="a", text="word", embedding=[1.0, 0.0], metadata={"kept": "yes"})
            store.add([other])
        return send(request)

    empty = MetadataFilter(key="kept", value=None, operator=FilterOperator.IS_EMPTY)
    monkeypatch.setattr(store.transport, "perform", replacing)
    store.delete_nodes(filters=MetadataFilters(filters=[empty]))
    assert store.count() == 1


def field(**mapping: object) -> dict[str, object]:
    return {"body": {"mappings": {"properties": {"one": mapping}}}}


@cases(
    ("params", "reason"),
    [
        ({"shards": 3}, "no setting 'shards'.*number_of_shards"),
        ({"number_of_shards": 0}, "number_of_shards must be at least 1"),
        ({"body": {"settings": {"similarity": {}}}}, "BM25 as on every engine"),
        ({"body": {"mappings": {"dynamic": True}}}, "mappings: there is no setting 'dynamic'"),
        (field(type="keyword"), "field 'one' of the body has the type 'keyword'"),
        (field(type="text", norms=False), "no setting 'norms'"),
        (field(type="dense_vector", index=False), "index=False"),
        (field(type="dense_vector", element_type="byte"), "no setting 'element_type'"),
        ({"number_of_shards": 2, "body": {"settings": {"number_of_shards": 3}}}, "leave one out"),
    ],
)
def test_settings_that_would_be_ignored_are_refused(params: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        IndexParams.of(params)


def test_a_body_gives_the_same_settings_as_their_names() -> None:
    analysis = {"analyzer": {"folded": {"tokenizer": "standard"}}}
    options = {"type": "int8_hnsw"}
    properties = {
        "embedding": {"type": "dense_vector", "index": True, "index_options": options},
        "content": {"type": "text", "analyzer": "folded"},
    }
    settings = {"index": {"number_of_shards": 3}, "index.number_of_replicas": 0}
    body = {"settings": {**settings, "analysis": analysis}, "mappings": {"properties": properties}}
    assert IndexParams.of({"body": body}) == IndexParams(
        number_of_shards=3,
        number_of_replicas=0,
        analyzer="folded",
        index_options=options,
        settings={"analysis": analysis},
    )
