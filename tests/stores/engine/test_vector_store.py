"""What a store of any engine refuses, on the embedded one."""

import asyncio
import copy
import math
import pickle
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilters

from llama_retrieval_ext.errors import (
    ConfigurationError,
    InvalidFilterError,
    RetrievalExtError,
    StoreClosedError,
    StoreError,
    UnsupportedModeError,
)
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.connection import AsyncClient
from tests.cases import cases
from tests.stores.store_contract import MODES, found, ids, node, where


def test_deleting_without_a_target_is_refused(store: EmbeddedVectorStore) -> None:
    store.add([node("a")])
    with pytest.raises(ConfigurationError, match=r"to empty the store call clear\(\)"):
        store.delete_nodes()
    with pytest.raises(ConfigurationError, match="needs the id of a document"):
        store.delete("")
    with pytest.raises(InvalidFilterError, match="empty group"):
        store.delete_nodes(filters=MetadataFilters(filters=[]))
    nothing = MetadataFilters(filters=where("k", 1).filters, condition=None)
    with pytest.raises(InvalidFilterError, match="condition=None"):
        store.delete_nodes(filters=nothing)
    with pytest.raises(ConfigurationError, match="no options shard"):
        store.delete("a.md", shard=1)
    with pytest.raises(ConfigurationError, match="add has no options batch_size"):
        store.add([node("b")], batch_size=3)
    assert ids(store) == ["a"]


def test_an_invalid_query_is_refused(store: EmbeddedVectorStore) -> None:
    store.add([node("a", k=1)])
    for mode in (MODES.SVM, MODES.SEMANTIC_HYBRID):
        with pytest.raises(UnsupportedModeError, match="serves DEFAULT, SPARSE"):
            found(store, mode)
    for options, reason in (
        ({"query_embedding": None}, "needs a query_embedding"),
        ({"query_embedding": None, "mode": MODES.HYBRID}, "needs a query_embedding"),
        ({"query_str": None, "mode": MODES.SPARSE}, "needs a query_str"),
        ({"query_str": None, "mode": MODES.HYBRID}, "needs a query_str"),
        ({"query_embedding": [math.nan, 1.0]}, "not finite"),
        ({"query_embedding": [1.0]}, r"dimension 1, "),
        ({"similarity_top_k": 0}, "at least 1"),
        ({"alpha": 2.0, "mode": MODES.HYBRID}, "alpha must be between"),
        ({"output_fields": ["node"]}, "no output_fields"),
        ({"filters": MetadataFilters(filters=[])}, "empty group"),
        ({"filters": where("k", None)}, "k"),
        ({"filters": where("k", "a,b", FilterOperator.IN)}, "k"),
    ):
        with pytest.raises(RetrievalExtError, match=reason):
            found(store, **options)


@pytest.mark.parametrize("again", [pickle.dumps, copy.deepcopy])
def test_copies_and_pickles_of_a_store_and_of_its_retriever_are_refused(
    store: EmbeddedVectorStore, again: Callable[[object], object]
) -> None:
    store.add([node("n")])
    retriever = KeywordRetriever(store)
    for each in (store, retriever):
        with pytest.raises(StoreError, match=r"open_store\(url\) in the other process"):
            again(each)
    assert [hit.node_id for hit in retriever.retrieve("leave")] == ["n"]


class Client:
    def __init__(self) -> None:
        self.loops: set[asyncio.AbstractEventLoop] = set()
        self.closed_on: asyncio.AbstractEventLoop | None = None
        self.is_asked = threading.Event()

    async def answer(self) -> int:
        self.loops.add(asyncio.get_running_loop())
        return 42

    async def wait_for_ever(self) -> None:
        self.is_asked.set()
        await asyncio.Event().wait()

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed_on = asyncio.get_running_loop()


def _clients(made: list[Client]) -> AsyncClient[Client]:
    def make() -> Client:
        made.append(Client())
        return made[-1]

    return AsyncClient(make, lambda: StoreClosedError("closed"))


@asynccontextmanager
async def _under_way() -> AsyncIterator[tuple[AsyncClient[Client], asyncio.Task[None]]]:
    """A client that is used already, and a request to it that never ends; for five seconds."""
    made: list[Client] = []
    client = _clients(made)
    await client.run(lambda each: each.answer())
    waiting = asyncio.create_task(client.run(lambda each: each.wait_for_ever()))
    async with asyncio.timeout(5):
        assert await asyncio.to_thread(made[0].is_asked.wait, 5)
        yield client, waiting


@cases("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_all_loops_share_one_client_which_is_closed_where_it_was_used(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    made: list[Client] = []
    client = _clients(made)

    async def twice() -> list[int]:
        return await asyncio.gather(*(client.run(lambda each: each.answer()) for _ in range(2)))

    for _ in range(2):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            assert runner.run(twice()) == [42, 42]
    client.close()
    client.close()
    assert [each.loops for each in made] == [{made[0].closed_on}]


async def test_a_request_that_is_under_way_or_comes_later_finds_it_closed() -> None:
    async with _under_way() as (client, waiting):
        client.close()
        with pytest.raises(StoreClosedError):
            await waiting
    with pytest.raises(StoreClosedError):
        await client.run(lambda each: each.answer())


async def test_a_cancelled_caller_cancels_its_request_alone() -> None:
    async with _under_way() as (client, waiting):
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await client.run(lambda each: each.answer()) == 42
    client.close()
