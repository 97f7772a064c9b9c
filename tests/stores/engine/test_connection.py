"""An async client lives on a loop of its own, whatever loops its callers have."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from llama_retrieval_ext.errors import StoreClosedError
from llama_retrieval_ext.stores.engine.connection import AsyncClient


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


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
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
