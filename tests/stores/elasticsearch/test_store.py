"""The promises of every store on Elasticsearch, and its searches."""

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode

from llama_retrieval_ext import RRF, HybridRetriever, Query, Retriever, VectorRetriever
from llama_retrieval_ext.errors import DeadlineExceededError, StoreUnavailableError
from llama_retrieval_ext.formulas.bm25 import bm25_term_weight
from llama_retrieval_ext.stores.elasticsearch import client
from llama_retrieval_ext.stores.elasticsearch.client import HttpRequest, Json
from llama_retrieval_ext.stores.elasticsearch.params import IndexParams
from llama_retrieval_ext.stores.elasticsearch.schema import index_body
from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.testing import BackendContract, FakeEmbedding, sample_nodes
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from llama_retrieval_ext.testing.retriever_contract import RetrieverContract
from tests.patience import soon
from tests.stores.elasticsearch.conftest import ALONE
from tests.stores.elasticsearch.msearch import Opener
from tests.stores.store_contract import StoreContract

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(open_store: Opener) -> Iterator[Opener]:
    """Opens one index, as often as needed."""
    stores = [open_store()]

    def again(**settings: Any) -> ElasticsearchVectorStore:
        stores.append(open_store(stores[0].index, **settings))
        return stores[-1]

    yield again
    stores[0].clear()


class TestStore(StoreContract[ElasticsearchVectorStore]):
    ranks_zeros = False  # they have no cosine


def test_the_nearest_of_few_nodes_are_found_for_a_vector_unlike_all_of_them(
    store: ElasticsearchVectorStore,
) -> None:
    random = np.random.default_rng(2)
    vectors = 2 * random.standard_normal(32) + random.standard_normal((300, 32))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = random.standard_normal((20, 32))[[13, 16]]  # where 100 candidates lose one of ten
    store.add(
        [TextNode(id_=str(n), text="word", embedding=row.tolist()) for n, row in enumerate(vectors)]
    )
    for query in queries:
        found = store.dense(query.tolist(), Search(10)).function()
        nearest = np.argsort(-(vectors @ query))[:10]
        assert {each.node_id for each in found} == {str(n) for n in nearest}


def test_a_keyword_score_is_bm25(store: ElasticsearchVectorStore) -> None:
    texts = {
        "a": "red red apple",
        "b": "red pear",
        "c": "green pear and a green apple",
        "d": "plum",
    }
    store.add([TextNode(id_=id_, text=text, embedding=[1.0]) for id_, text in texts.items()])
    found = store.keyword("red", Search(10)).function()
    average = sum(len(text.split()) for text in texts.values()) / len(texts)
    idf = math.log1p((4 - 2 + 0.5) / (2 + 0.5))
    for each in found:
        words = texts[each.node_id].split()
        weight = bm25_term_weight(words.count("red"), length=len(words), average_length=average)
        assert each.score == pytest.approx(idf * weight, rel=1e-5)


def test_a_servers_own_analyser_may_cut_the_words(open_store: Opener) -> None:
    store = open_store(store_params={"analyzer": "stop"})
    store.add([TextNode(id_="a", text="The Leaving of the-others", embedding=[1.0])])
    assert store.keyword("leaving", Search(5)).function()
    assert not store.keyword("leave", Search(5)).function()
    assert not store.keyword("the", Search(5)).function()


def test_a_hybrid_query_is_one_request_for_ids_and_one_for_nodes_and_agrees_with_two_searches(
    store: ElasticsearchVectorStore, embed_model: FakeEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(sample_nodes(embed_model))
    sent: list[HttpRequest] = []
    send = store.transport.perform

    def counted(request: HttpRequest) -> Json:
        sent.append(request)
        return send(request)

    monkeypatch.setattr(store.transport, "perform", counted)
    hybrid = HybridRetriever(store, embed_model=embed_model, fusion=RRF())
    query = Query("annual leave", top_k=8)
    hybrid.retrieve(query)  # the first search of an index with so few nodes is put twice
    sent.clear()
    hits = hybrid.retrieve(query)
    index = store.describe()["index"]
    assert [request.path for request in sent] == ["/_msearch", f"/{index}/_search"]

    features = replace(store.features, one_round_trip=False)
    monkeypatch.setattr(ElasticsearchVectorStore, "features", features)
    apart = HybridRetriever(store, embed_model=embed_model, fusion=RRF())
    expected = apart.retrieve(query)
    assert [hit.node_id for hit in hits] == [hit.node_id for hit in expected]
    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected])
    assert len(sent) == 4
    sent.clear()
    assert len(hybrid.retrieve(Query("annual leave", top_k=60))) > 8
    assert [request.path for request in sent] == ["/_msearch"]


QUERY = Query("word", embedding=[1.0, 0.0])
# How many of its shards may be on one machine.
_ROOM = "routing.allocation.total_shards_per_node"

Call = Callable[[ElasticsearchVectorStore], object]

CALLS: dict[str, Call] = {
    "ids first": lambda store: HybridRetriever(store).retrieve(QUERY),
    "one round trip, async": lambda store: asyncio.run(
        HybridRetriever(store, candidates=10).aretrieve(QUERY)
    ),
    "delete": lambda store: store.delete_nodes(["none such"]),
}


@pytest.fixture
def halved(store: ElasticsearchVectorStore) -> Iterator[ElasticsearchVectorStore]:
    """An index that somebody has made, one of whose two shards has no place."""
    params = IndexParams(number_of_shards=2, number_of_replicas=0, settings={_ROOM: 1})
    config = StoreConfig(dimension=2, params=ALONE)
    body = index_body(config, params)
    store.client.indices.create(index=store.index, wait_for_active_shards="0", **body)
    yield store
    _make_room(store)


def _make_room(store: ElasticsearchVectorStore) -> None:
    store.client.indices.put_settings(index=store.index, settings={_ROOM: 2})


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_reads_wait_for_the_shards_of_a_new_index(
    halved: ElasticsearchVectorStore, call: Call
) -> None:
    timer = threading.Timer(0.4, _make_room, [halved])
    timer.start()
    try:
        assert not call(halved)
    finally:
        timer.join()


def test_an_index_with_a_missing_shard_is_unavailable_within_the_deadline(
    halved: ElasticsearchVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with soon(), pytest.raises((StoreUnavailableError, DeadlineExceededError)):
        VectorRetriever(halved).retrieve(QUERY.but(timeout_s=0.5))
    monkeypatch.setattr(client, "_RETRY_PAUSES_S", (0.05, 0.1))
    with pytest.raises(StoreUnavailableError, match="in trouble"):
        halved.count()


@pytest.fixture(scope="module")
def filled(open_store: Opener) -> ElasticsearchVectorStore:
    store = open_store()
    store.add(sample_nodes(FakeEmbedding()))
    return store


@pytest.fixture(scope="module")
def spread(open_store: Opener) -> ElasticsearchVectorStore:
    """Three shards, tenants on one each."""
    store = open_store(store_params={"number_of_shards": 3, "routing": True})
    store.add(sample_nodes(FakeEmbedding()))
    return store


class TestBackend(BackendContract):
    @pytest.fixture
    def backend(self, filled: ElasticsearchVectorStore) -> ElasticsearchVectorStore:
        return filled


class TestBackendOfManyTenants(BackendContract):
    @pytest.fixture
    def backend(self, spread: ElasticsearchVectorStore) -> ElasticsearchVectorStore:
        return spread


class TestHybridRetriever(RetrieverContract):
    @pytest.fixture
    def retriever(self, filled: ElasticsearchVectorStore, embed_model: BaseEmbedding) -> Retriever:
        return HybridRetriever(filled, embed_model=embed_model, top_k=5)


class TestHybridRetrieverOfManyTenants(IsolationContract):
    @pytest.fixture
    def retriever(self, spread: ElasticsearchVectorStore, embed_model: BaseEmbedding) -> Retriever:
        return HybridRetriever(spread, embed_model=embed_model, top_k=5)
