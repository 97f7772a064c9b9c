"""A loop in a thread of its own, and how it ends."""

import asyncio
import threading
import time

import pytest

from llama_retrieval_ext.execution.drivers import LoopThread


def test_it_can_be_closed_from_its_own_thread() -> None:
    loop = LoopThread("own")

    async def close() -> threading.Thread:
        loop.close()
        return threading.current_thread()

    thread = asyncio.run(asyncio.wait_for(loop.run(close()), 5))
    thread.join(5)
    assert not thread.is_alive()


def test_who_waits_when_it_is_closed_waits_no_longer() -> None:
    loop = LoopThread("waiting")

    async def waiting() -> None:
        task = asyncio.create_task(loop.run(asyncio.sleep(60)))
        await asyncio.sleep(0.05)
        loop.close()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)

    started = time.monotonic()
    asyncio.run(waiting())
    assert time.monotonic() - started < 5


def test_what_goes_wrong_at_the_end_is_told() -> None:
    async def failing() -> None:
        raise ConnectionError("not closed")

    with pytest.raises(ConnectionError, match="not closed"):
        LoopThread("failing").close(failing())
