"""What every engine promises of a server that is down, silent, or back again."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import RRF, BM25Retriever, HybridRetriever, Query
from llama_retrieval_ext.errors import DeadlineExceededError, StoreUnavailableError, TooFewLegsError
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from tests.patience import SOON_S, in_time, soon
from tests.servers.forwarder import Forwarder

S = TypeVar("S", bound=EngineStore)

NODE = TextNode(id_="a", text="word", embedding=[1.0, 0.0])
OTHER = TextNode(id_="b", text="other", embedding=[1.0, 0.0])
QUERY = Query("word", embedding=[1.0, 0.0])
CALLS: dict[str, Callable[[EngineStore], object]] = {
    "search": lambda store: VectorRetriever(store).retrieve(QUERY),
    "async search": lambda store: asyncio.run(KeywordRetriever(store).aretrieve(QUERY)),
    "hybrid search": lambda store: HybridRetriever(store).retrieve(QUERY),
    "add": lambda store: store.add([OTHER]),
    "async add": lambda store: asyncio.run(store.async_add([OTHER])),
    "delete": lambda store: store.delete_nodes(["b"]),
    "read": lambda store: store.get_nodes(),
    "count": lambda store: store.count(),
    "clear": lambda store: store.clear(),
}


class ServerContract(Generic[S]):
    """Subclass it in a module with two fixtures.

    ``line`` is a forwarder to the server; ``open_through(timeout_s=...)`` opens a collection
    through it that contains `NODE`, and closes it in the end.
    """

    def test_a_server_that_is_down_is_unavailable_and_works_again_when_it_is_back(
        self, open_through: Callable[..., S], line: Forwarder
    ) -> None:
        store = open_through(timeout_s=10)
        KeywordRetriever(store).retrieve(QUERY)
        for _ in range(2):
            line.down()
            for call in CALLS.values():
                # A hybrid search of two requests names both legs.
                errors = (StoreUnavailableError, TooFewLegsError)
                with soon(), pytest.raises(errors, match=r"127\.0\.0\.1"):
                    call(store)
            line.up()
            for call in CALLS.values():
                call(store)

    def test_opening_without_the_server_fails_in_time(
        self, open_through: Callable[..., S], line: Forwarder
    ) -> None:
        line.down()
        with soon(), pytest.raises(StoreUnavailableError, match="cannot be reached") as caught:
            open_through(timeout_s=2)
        assert isinstance(caught.value, ConnectionError)

    def test_an_optional_leg_without_its_server_is_left_out(
        self, open_through: Callable[..., S], line: Forwarder
    ) -> None:
        other = BM25Retriever([TextNode(id_="m", text="word")])
        both = (VectorRetriever(open_through(timeout_s=10)) | other) >> RRF()
        assert {hit.node_id for hit in both.search(QUERY).hits} == {"a", "m"}
        line.down()
        result = both.search(QUERY)
        assert [hit.node_id for hit in result.hits] == ["m"]
        assert [part.where for part in result.degraded] == ["vector"]
        line.up()
        assert not both.search(QUERY).degraded

    def test_a_silent_server_takes_no_longer_than_the_timeout_of_the_query(
        self, open_through: Callable[..., S], line: Forwarder
    ) -> None:
        retriever = VectorRetriever(open_through(timeout_s=60))
        assert retriever.retrieve(QUERY) == asyncio.run(retriever.aretrieve(QUERY))
        line.silent.set()
        short = QUERY.but(timeout_s=0.3)
        for search in (retriever.retrieve, lambda query: asyncio.run(retriever.aretrieve(query))):
            with soon(), pytest.raises((StoreUnavailableError, DeadlineExceededError)):
                search(short)
        line.down()
        line.silent.clear()
        line.up()
        assert retriever.retrieve(QUERY.but(timeout_s=SOON_S))

    def test_a_request_to_a_silent_server_ends_at_the_timeout_of_the_connection(
        self, open_through: Callable[..., S], line: Forwarder
    ) -> None:
        store = in_time(lambda: open_through(timeout_s=1))
        line.silent.set()
        for request in (store.count, lambda: asyncio.run(store.aget_nodes())):
            with soon(), pytest.raises(StoreUnavailableError):
                request()
        line.down()
