"""Leaves a source alone for a while when it keeps failing, so that queries do not wait for it."""

import time
from collections.abc import Callable
from threading import Lock

from llama_retrieval_ext.arguments import RecordsArguments
from llama_retrieval_ext.checks import CheckedArguments, check_count, check_seconds
from llama_retrieval_ext.errors import CircuitOpenError


class CircuitBreaker(CheckedArguments, RecordsArguments):
    """Counts failures in a row; opens after some, and lets one call through after a while to see.

    The one of a `Leg`: ``Leg("web", retriever, breaker=CircuitBreaker(failures=3, reset_s=10))``.
    Legs that share a source may share one.

    Args:
        failures: How many failures in a row open it, at least 1.
        reset_s: Seconds it stays open before one call may try again.
        clock: Monotonic time in seconds.

    Raises:
        ConfigurationError: A value is out of range.

    Source:
        M. Nygard, Release It!, 2nd edition, 2018, chapter 5, "Circuit Breaker".

    Examples:
        >>> breaker = CircuitBreaker(failures=1, reset_s=60)
        >>> breaker.failed()
        >>> breaker.is_open
        True

    """

    def __init__(
        self,
        *,
        failures: int = 5,
        reset_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures = check_count(failures, "failures")
        self.reset_s = check_seconds(reset_s, "reset_s")
        self._clock = clock
        self._lock = Lock()
        self._in_a_row = 0
        self._retry_at: float | None = None

    # A copy, perhaps in another process, has seen no failure yet, and a lock cannot be copied.
    def __getstate__(self) -> dict[str, object]:
        kept = {name: value for name, value in vars(self).items() if name != "_lock"}
        return {**kept, "_in_a_row": 0, "_retry_at": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=Lock())

    @property
    def is_open(self) -> bool:
        """Whether calls are refused now."""
        retry_at = self._retry_at  # read once: another thread may close the breaker meanwhile
        return retry_at is not None and self._clock() < retry_at

    def check(self) -> None:
        """Nothing, if a call may be made.

        Raises:
            CircuitOpenError: Not now.
        """
        with self._lock:
            if self._retry_at is None:
                return
            wait_s = self._retry_at - self._clock()
            if wait_s > 0:
                raise CircuitOpenError(
                    f"left alone after {self._in_a_row} failures in a row; "
                    f"tried again in {wait_s:.1f} s"
                )
            self._retry_at = self._clock() + self.reset_s  # the others wait for what this one finds

    def succeeded(self) -> None:
        """Note a call that went well: everybody may call again."""
        with self._lock:
            self._in_a_row = 0
            self._retry_at = None

    def failed(self) -> None:
        """Note a call that failed."""
        with self._lock:
            self._in_a_row += 1
            if self._in_a_row >= self.failures:
                self._retry_at = self._clock() + self.reset_s
