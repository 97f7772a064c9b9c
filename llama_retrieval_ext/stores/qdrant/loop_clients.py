"""`LoopClients`: an async client for each event loop, closed when its loop ends."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar


class _Closable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


class LoopClients(Generic[C]):
    """Makes a client when a loop first asks, and closes it before the loop is closed.

    The connections that a client keeps open belong to the loop they were made on: a client that
    outlives its loop can neither use nor close them.

    Args:
        make: Makes a client.

    Examples:
        >>> class Client:
        ...     async def close(self):
        ...         print("closed")
        >>> clients = LoopClients(Client)
        >>> async def ask():
        ...     return await clients.of_this_loop() is await clients.of_this_loop()
        >>> asyncio.run(ask())
        closed
        True

    """

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._kept: dict[asyncio.AbstractEventLoop, tuple[C, AsyncGenerator[None, None]]] = {}

    async def of_this_loop(self) -> C:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._kept:
            self._forget_the_closed()
            client = self._make()
            until_the_end = self._until_the_end(loop, client)
            self._kept[loop] = client, until_the_end
            # A loop ends the generators that were begun on it before it is closed: so do
            # asyncio.run and Runner, uvloop and pytest. No other sign of its end is given.
            await anext(until_the_end)
        return self._kept[loop][0]

    def close(self) -> None:
        """Have the loops that run close their clients; those that stand do it when they end."""
        for loop, (_, until_the_end) in list(self._kept.items()):
            if loop.is_running():
                with suppress(RuntimeError):  # it ended just now
                    asyncio.run_coroutine_threadsafe(_ended(until_the_end), loop)

    async def _until_the_end(
        self, loop: asyncio.AbstractEventLoop, client: C
    ) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._kept.pop(loop, None)
            await client.close()

    def _forget_the_closed(self) -> None:
        """Drop what belongs to loops that were closed without ending their generators."""
        for loop in list(self._kept):
            if loop.is_closed():
                self._kept.pop(loop, None)


async def _ended(generator: AsyncGenerator[None, None]) -> None:
    await generator.aclose()
