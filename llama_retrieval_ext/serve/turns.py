"""`Turns`: limits of the requests that run, wait, and hold bodies, in all and for each key."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from llama_retrieval_ext.serve.http_errors import HttpError


@dataclass(slots=True)
class _Share:
    """What a group of requests may hold, and what it holds now."""

    max_pending: int
    max_bytes: int
    turns: asyncio.Semaphore
    n_pending: int = 0
    n_bytes: int = 0


class Turns:
    """Shares the capacity of a server among its keys, so that one key cannot stop the others.

    Args:
        concurrency: Requests that run at the same time.
        per_key: The same for the requests of one key.
        max_waiting: Requests that may wait, in addition to those that run; a key may take
            ``per_key / concurrency`` of these places.
        max_body_bytes: Size of one body. All bodies may hold ``concurrency`` times this, those of
            one key ``per_key`` times.
    """

    def __init__(
        self, *, concurrency: int, per_key: int, max_waiting: int, max_body_bytes: int
    ) -> None:
        def share(turns: int) -> _Share:
            places = max(1, (concurrency + max_waiting) * turns // concurrency)
            return _Share(places, max_body_bytes * turns, asyncio.Semaphore(turns))

        self._all = share(concurrency)
        self._of_key = defaultdict[str, _Share](lambda: share(per_key))

    @contextmanager
    def pending(self, key: str) -> Iterator[Callable[[int], None]]:
        """Count a request while it reads its body, waits and runs.

        Yields:
            The function that counts bytes of the request's body.

        Raises:
            HttpError: Too many requests are pending, or hold too many bytes.
        """
        shares = (self._all, self._of_key[key])
        if any(share.n_pending >= share.max_pending for share in shares):
            raise HttpError(503, "busy", "too many requests are waiting; try again later")
        held = 0

        def hold(n_bytes: int) -> None:
            nonlocal held
            if any(share.n_bytes + n_bytes > share.max_bytes for share in shares):
                raise HttpError(503, "busy", "too many large bodies are waiting; try again later")
            held += n_bytes
            for share in shares:
                share.n_bytes += n_bytes

        for share in shares:
            share.n_pending += 1
        try:
            yield hold
        finally:
            for share in shares:
                share.n_pending -= 1
                share.n_bytes -= held

    @asynccontextmanager
    async def turn(self, key: str, *, timeout_s: float) -> AsyncIterator[None]:
        """Wait for a turn of the key, then for one of all, and hold both.

        Raises:
            TimeoutError: The request did not get its turn in time.
        """
        mine, all_turns = self._of_key[key].turns, self._all.turns
        async with asyncio.timeout(timeout_s) as waiting, mine, all_turns:
            waiting.reschedule(None)
            yield
