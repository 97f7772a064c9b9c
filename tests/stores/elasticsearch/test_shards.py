"""An index whose shards are on their way: it was just made, or the server was just started."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from llama_retrieval_ext.errors import DeadlineExceededError, StoreUnavailableError
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stores.elasticsearch.params import IndexParams
from llama_retrieval_ext.stores.elasticsearch.schema import index_body
from llama_retrieval_ext.stores.elasticsearch.store import (
    ElasticsearchBackend,
    ElasticsearchVectorStore,
)
from llama_retrieval_ext.stores.engine.config import StoreConfig
from tests.stores.elasticsearch.conftest import ALONE

QUERY = Query("word", embedding=[1.0, 0.0])
# How many of its shards may be on one machine.
_ROOM = "routing.allocation.total_shards_per_node"

Call = Callable[[ElasticsearchVectorStore], object]

CALLS: dict[str, Call] = {
    "vector": lambda store: VectorRetriever(ElasticsearchBackend(store)).retrieve(QUERY),
    "keyword, async": lambda store: asyncio.run(
        KeywordRetriever(ElasticsearchBackend(store)).aretrieve(QUERY)
    ),
    "ids first": lambda store: HybridRetriever(ElasticsearchBackend(store)).retrieve(QUERY),
    "one round trip, async": lambda store: asyncio.run(
        HybridRetriever(ElasticsearchBackend(store), candidates=10).aretrieve(QUERY)
    ),
    "read": lambda store: store.get_nodes(),
    "count": lambda store: store.count(),
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
def test_who_reads_waits_for_the_shards(halved: ElasticsearchVectorStore, call: Call) -> None:
    timer = threading.Timer(0.4, _make_room, [halved])
    timer.start()
    try:
        assert not call(halved)
    finally:
        timer.join()


def test_the_deadline_of_a_query_holds_meanwhile(halved: ElasticsearchVectorStore) -> None:
    started = time.monotonic()
    with pytest.raises((StoreUnavailableError, DeadlineExceededError)):
        VectorRetriever(ElasticsearchBackend(halved)).retrieve(QUERY.but(timeout_s=0.5))
    assert time.monotonic() - started < 2


def test_half_an_index_is_unavailable_and_not_half_an_answer(
    halved: ElasticsearchVectorStore,
) -> None:
    for ask in (halved.count, halved.get_nodes):
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="in trouble"):
            ask()
        assert time.monotonic() - started < 20
