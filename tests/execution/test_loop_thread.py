"""A loop in a thread of its own, and how it ends."""

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows cannot fork")
def test_a_forked_child_makes_its_own_loop_and_ends() -> None:
    code = """
    import asyncio, os, signal
    from llama_retrieval_ext.stores.engine.connection import AsyncClient

    class Client:
        async def answer(self):
            return os.getpid()

        async def close(self):
            print("closed")

    def answered(client):
        assert asyncio.run(client.run(lambda each: each.answer())) == os.getpid()

    used, other = (AsyncClient(Client, ValueError) for _ in range(2))
    answered(used), answered(other)
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # otherwise it could hang
        answered(used), used.close(), other.close()
    else:
        assert os.waitpid(child, 0)[1] == 0
        answered(used), used.close(), other.close()
    """
    command = [sys.executable, "-u", "-W", "error", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stderr, done.returncode, done.stdout) == ("", 0, "closed\n" * 3)


def test_an_error_after_the_caller_was_cancelled_is_not_logged() -> None:
    loop = LoopThread("late")
    logged: list[object] = []
    ended = threading.Event()

    async def fails_when_cancelled() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.set()
            raise ConnectionError("the answer came too late") from None

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.run(fails_when_cancelled()), 0.05)

    asyncio.run(impatient())
    assert ended.wait(5)
    loop.close()
    gc.collect()
    assert logged == []
