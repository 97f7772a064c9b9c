"""Tests of what takes tens of milliseconds, on machines that stand still for as long at times."""

import functools
import time
from collections.abc import Callable
from typing import ParamSpec

from llama_retrieval_ext.errors import RetrievalExtError

P = ParamSpec("P")
_TRIES = 3
_PAUSE_S = 0.2


def unless_stalled(test: Callable[P, None]) -> Callable[P, None]:
    """Let a test pass if it does once in three tries; what is wrong fails each time."""

    @functools.wraps(test)
    def tried(*args: P.args, **kwargs: P.kwargs) -> None:
        for _ in range(_TRIES - 1):
            try:
                return test(*args, **kwargs)
            except (AssertionError, RetrievalExtError):
                time.sleep(_PAUSE_S)
        return test(*args, **kwargs)

    return tried
