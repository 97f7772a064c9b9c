import asyncio
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from llama_retrieval_ext.execution.drivers import DaemonPool
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.testing.fakes import FakeRetriever

Composite = Callable[..., Retriever]


@pytest.fixture
def pool() -> DaemonPool:
    return DaemonPool()


def script(code: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_a_function_gives_its_result_or_its_error(pool: DaemonPool) -> None:
    assert pool.submit(lambda: "value").result(5) == "value"
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(5)


def test_an_idle_thread_is_used_again(pool: DaemonPool) -> None:
    idents = set()
    for _ in range(20):
        idents.add(pool.submit(threading.get_ident).result(5))
        time.sleep(0.001)  # its thread is idle again
    assert len(idents) <= 2


def test_as_many_run_at_once_as_are_submitted(pool: DaemonPool) -> None:
    together = threading.Barrier(50)
    futures = [pool.submit(partial(together.wait, 5)) for _ in range(50)]
    assert sorted(future.result(5) for future in futures) == list(range(50))


def test_many_threads_may_submit_at_once(pool: DaemonPool) -> None:
    def work() -> int:
        futures = [pool.submit(partial(abs, place)) for place in range(100)]
        return sum(future.result(5) for future in futures)

    futures = [pool.submit(work) for _ in range(8)]
    assert [future.result(10) for future in futures] == [4950] * 8


def test_an_idle_thread_keeps_nothing_alive(pool: DaemonPool) -> None:
    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)
    pool.submit(partial(id, big)).result(5)
    del big
    give_up_at = time.monotonic() + 2
    while gone() is not None and time.monotonic() < give_up_at:
        time.sleep(0.005)
    assert gone() is None


def test_a_function_that_was_cancelled_in_time_is_not_run(pool: DaemonPool) -> None:
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


def test_a_forked_child_has_threads_of_its_own() -> None:
    done = script(
        """
        import os
        from llama_retrieval_ext.execution.drivers import pool
        assert pool.submit(lambda: 1).result(5) == 1  # its thread is idle, and stays behind
        child = os.fork()
        if child == 0:
            os._exit(pool.submit(lambda: 42).result(5))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), pool.submit(lambda: 1).result(5))
        """
    )
    assert done.stdout.split() == ["42", "1"], done.stderr


def test_a_function_that_hangs_does_not_hold_up_the_end_of_the_program() -> None:
    done = script(
        """
        import threading
        from llama_retrieval_ext.execution.drivers import pool
        begun = threading.Event()
        pool.submit(lambda: begun.set() or threading.Event().wait())
        print(begun.wait(5))
        """
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")
