"""Threads for legs: as many as are busy, and never in the way of the interpreter's exit.

The pools of ``concurrent.futures`` do not fit: a bounded one deadlocks when composites nest, one
leg that hangs takes a worker for good, and the interpreter waits for it at exit.
"""

import os
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_Job: TypeAlias = tuple[Future[Any], Callable[[], Any]]

_IDLE_S = 20.0


class DaemonPool:
    """An unbounded pool of daemon threads that are used again while they are idle."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all threads: a forked child has none of its parent's."""
        self._lock = Lock()
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._idle = 0

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Run a function in a thread of its own, at once."""
        future: Future[T] = Future()
        with self._lock:
            reuse = self._idle > 0
            self._idle -= reuse
        if reuse:
            self._jobs.put((future, function))
        else:
            Thread(target=self._work, args=([(future, function)],), daemon=True).start()
        return future

    def _work(self, first: list[_Job]) -> None:
        job: _Job | None = first.pop()  # a thread keeps its arguments for as long as it lives
        while job is not None:
            _run(*job)
            del job  # an idle thread must keep neither the function nor its result alive
            job = self._next()

    def _next(self) -> _Job | None:
        with self._lock:
            self._idle += 1
        try:
            return self._jobs.get(timeout=_IDLE_S)
        except Empty:
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    return None
        return self._jobs.get()  # every idle thread is promised a job, so one is on its way


def _run(future: "Future[T]", function: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except StopIteration as stop:
        # As in a generator: asyncio's futures refuse it, and whoever waits would wait for ever.
        error = RuntimeError("a leg raised StopIteration")
        error.__cause__ = stop
        future.set_exception(error)
    except BaseException as error:  # noqa: BLE001 - it is handed on, not swallowed
        future.set_exception(error)


# The one piece of module state: threads belong to the process, not to a retriever.
pool = DaemonPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.reset)
