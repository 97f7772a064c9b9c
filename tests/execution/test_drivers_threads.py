"""The threads of the drivers: the pool for blocking calls and the loop thread."""

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from functools import partial

import pytest

from llama_retrieval_ext.execution.drivers import DaemonPool, LoopThread
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.testing.fakes import FakeRetriever
from tests.execution.conftest import Composite
from tests.patience import soon
from tests.programs import run_program


@pytest.fixture
def pool() -> DaemonPool:
    return DaemonPool()


def script(code: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-u", "-W", "error", "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_the_pool_reuses_an_idle_thread(pool: DaemonPool) -> None:
    idents = set()
    for _ in range(20):
        idents.add(pool.submit(threading.get_ident).result(30))
        time.sleep(0.001)  # its thread is idle again
    assert len(idents) <= 2


def test_an_idle_thread_of_the_pool_keeps_no_reference(pool: DaemonPool) -> None:
    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)
    pool.submit(partial(id, big)).result(30)
    del big
    give_up_at = time.monotonic() + 30
    while gone() is not None and time.monotonic() < give_up_at:
        time.sleep(0.005)
    assert gone() is None


def test_the_pool_does_not_run_a_cancelled_function(pool: DaemonPool) -> None:
    called = threading.Event()
    future = pool.submit(called.set)
    cancelled = future.cancel()  # or it has begun
    assert cancelled is not called.wait(0.05)


@pytest.mark.parametrize("way", ["threads", "loop"])
def test_composites_ten_deep_and_four_wide_do_not_deadlock(fused: Composite, way: str) -> None:
    tree: Retriever = fused(*(FakeRetriever([("bottom", 1.0)]) for _ in range(4)))
    for depth in range(9):
        tree = fused(tree, *(FakeRetriever([(f"n{depth}", 0.5)]) for _ in range(3)))
    in_threads = way == "threads"
    hits = tree.retrieve("query") if in_threads else asyncio.run(tree.aretrieve("query"))
    assert node_ids(hits)[0] == "bottom"
    assert len(hits) == 10


@pytest.mark.slow
def test_a_forked_child_has_its_own_threads() -> None:
    done = run_program(
        """
        import os
        from llama_retrieval_ext.execution.drivers import pool
        assert pool.submit(lambda: 1).result(30) == 1  # its thread is idle, and stays behind
        child = os.fork()
        if child == 0:
            os._exit(pool.submit(lambda: 42).result(30))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), pool.submit(lambda: 1).result(30))
        """
    )
    assert done.stdout.split() == ["42", "1"], done.stderr


@pytest.mark.slow
def test_a_hanging_function_does_not_delay_the_end_of_the_program() -> None:
    done = script(
        """
        import threading
        from llama_retrieval_ext.execution.drivers import pool
        begun = threading.Event()
        pool.submit(lambda: begun.set() or threading.Event().wait())
        print(begun.wait(30))
        """
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")


def test_a_loop_thread_can_be_closed_from_its_own_thread() -> None:
    loop = LoopThread("own")

    async def close() -> threading.Thread:
        loop.close()
        return threading.current_thread()

    thread = asyncio.run(asyncio.wait_for(loop.run(close()), 30))
    thread.join(30)
    assert not thread.is_alive()


def test_closing_a_loop_thread_cancels_those_who_wait() -> None:
    loop = LoopThread("waiting")

    async def waiting() -> None:
        task = asyncio.create_task(loop.run(asyncio.sleep(60)))
        await asyncio.sleep(0.05)
        loop.close()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 30)

    with soon():
        asyncio.run(waiting())


def test_an_error_while_closing_a_loop_thread_is_raised() -> None:
    async def failing() -> None:
        raise ConnectionError("not closed")

    with pytest.raises(ConnectionError, match="not closed"):
        LoopThread("failing").close(failing())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows cannot fork")
def test_a_forked_child_makes_its_own_loop_thread() -> None:
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
        signal.alarm(60)  # otherwise it could hang
        answered(used), used.close(), other.close()
    else:
        assert os.waitpid(child, 0)[1] == 0
        answered(used), used.close(), other.close()
    """
    done = run_program(code)
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
    assert ended.wait(30)
    loop.close()
    gc.collect()
    assert logged == []
