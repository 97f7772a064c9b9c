"""A client of an event loop is closed in time: when the loop ends, or before."""

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest
import uvloop

from llama_retrieval_ext.stores.qdrant.client import LoopClients


class Client:
    def __init__(self) -> None:
        self.closed_on: asyncio.AbstractEventLoop | None = None
        self.closed = asyncio.Event()

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed_on = asyncio.get_running_loop()
        self.closed.set()


async def _asked(clients: LoopClients[Client]) -> tuple[Client, asyncio.AbstractEventLoop]:
    both = await asyncio.gather(clients.of_this_loop(), clients.of_this_loop())
    assert both[0] is both[1]
    assert both[0].closed_on is None
    return both[0], asyncio.get_running_loop()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_each_loop_has_one_client_and_closes_it_at_its_end(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    clients = LoopClients(Client)
    asked = []
    for _ in range(2):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            asked.append(runner.run(_asked(clients)))
    (first, first_loop), (second, second_loop) = asked
    assert first is not second
    assert (first.closed_on, second.closed_on) == (first_loop, second_loop)


def test_a_loop_that_has_ended_is_not_kept() -> None:
    clients = LoopClients(Client)
    loop = weakref.ref(asyncio.run(_asked(clients))[1])
    gc.collect()
    assert loop() is None


def test_a_loop_that_is_closed_without_ceremony_is_not_kept_either() -> None:
    clients = LoopClients(Client)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_asked(clients))
    loop.close()
    gone = weakref.ref(loop)
    del loop
    asyncio.run(_asked(clients))
    gc.collect()
    assert gone() is None


async def test_on_a_loop_that_goes_on_the_client_is_closed_when_asked() -> None:
    clients = LoopClients(Client)
    client, loop = await _asked(clients)
    clients.close()
    async with asyncio.timeout(5):
        await client.closed.wait()
    assert client.closed_on is loop
    again, _ = await _asked(clients)
    assert again is not client


def test_on_a_loop_that_stands_the_client_is_closed_at_its_end() -> None:
    clients = LoopClients(Client)
    with asyncio.Runner() as runner:
        client, loop = runner.run(_asked(clients))
        clients.close()
    assert client.closed_on is loop


def test_closing_as_the_last_thing_on_a_loop_closes_the_client() -> None:
    clients = LoopClients(Client)

    async def last() -> tuple[Client, asyncio.AbstractEventLoop]:
        asked = await _asked(clients)
        clients.close()
        return asked

    client, loop = asyncio.run(last())
    assert client.closed_on is loop


async def test_the_client_of_what_is_garbage_is_closed() -> None:
    client, loop = await _asked(LoopClients(Client))
    gc.collect()
    async with asyncio.timeout(5):
        await client.closed.wait()
    assert client.closed_on is loop
