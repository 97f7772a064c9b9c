"""Tests that do not depend on how fast a machine is, which stands still for seconds at times."""

import functools
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import pytest

from llama_retrieval_ext.errors import RetrievalExtError

P = ParamSpec("P")
T = TypeVar("T")
_TRIES = 3
_PAUSE_S = 0.2
# What hangs in a test does so for longer.
SOON_S = 30.0
_STALLED = (AssertionError, RetrievalExtError, pytest.fail.Exception)


def unless_stalled(test: Callable[P, T]) -> Callable[P, T]:
    """Let a test of some milliseconds pass once in three tries; what is wrong always fails."""

    @functools.wraps(test)
    def tried(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_TRIES - 1):
            try:
                return test(*args, **kwargs)
            except _STALLED:
                time.sleep(_PAUSE_S)
        return test(*args, **kwargs)

    assert not inspect.iscoroutinefunction(test)
    return tried


def in_time(call: Callable[[], T]) -> T:
    """Repeat a call that has a short limit until it keeps it: the server may be busy."""
    deadline = time.monotonic() + SOON_S
    while True:
        try:
            return call()
        except RetrievalExtError:
            if time.monotonic() > deadline:
                raise


@contextmanager
def soon() -> Iterator[None]:
    """Assert that a block that could hang does not."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < SOON_S
