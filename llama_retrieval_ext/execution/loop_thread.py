"""An event loop in its own thread, for async clients that outlive their callers' loops."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Event loop in its own thread that runs coroutines for other threads and loops.

    Examples:
        >>> loop = LoopThread("example")
        >>> async def answer():
        ...     return 42
        >>> asyncio.run(loop.run(answer()))
        42
        >>> loop.close()

    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of the coroutine; cancelling the caller cancels the coroutine."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    def close(self, last: Coroutine[Any, Any, object] | None = None) -> None:
        """Run a last coroutine, cancel the others, then stop the loop and the thread."""
        ended = asyncio.run_coroutine_threadsafe(_ended(last), self._loop)
        ended.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        # The garbage collector may close a store on any thread, including this one.
        if threading.current_thread() is not self._thread:
            self._thread.join()
            ended.result()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()


async def _ended(last: Coroutine[Any, Any, object] | None) -> None:
    if last is not None:
        await last
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()  # otherwise its caller would wait forever
    await asyncio.gather(*others, return_exceptions=True)
