"""Makes the clients for an address, and shares those of local mode."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Final
from urllib.parse import urlsplit

from qdrant_client import AsyncQdrantClient, QdrantClient

from llama_retrieval_ext.stores.qdrant.address import MEMORY, Address
from llama_retrieval_ext.stores.qdrant.connection import Connection
from llama_retrieval_ext.stores.qdrant.failures import meaning

_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}


@dataclass(slots=True, eq=False)
class _Shared:
    """A local client and how many use it; when nobody does, it is closed."""

    client: QdrantClient
    users: int = 0


class LocalClients:
    """The directories this process has open: Qdrant's local mode opens each only once.

    A notebook cell that opens a store is run again and again. The garbage collector releases stores
    at any line of any thread; therefore the lock is reentrant.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know of none: a forked child can use nothing of what its parent has open."""
        self._lock = RLock()
        self._open: dict[Path, _Shared] = {}

    def acquire(self, path: str) -> tuple[QdrantClient, Callable[[], None]]:
        """The client of a directory, and what releases it."""
        real = Path(path).expanduser().resolve()
        with self._lock:
            if real not in self._open:
                client = QdrantClient(path=str(real), force_disable_check_same_thread=True)
                self._open[real] = _Shared(client)
            shared = self._open[real]
            shared.users += 1
        return shared.client, lambda: self._release(real, shared)

    def _release(self, real: Path, shared: _Shared) -> None:
        with self._lock:
            shared.users -= 1
            if shared.users == 0:
                del self._open[real]
                shared.client.close()


# Module state, because a process can have a directory open once, whoever opens it.
local_clients: Final = LocalClients()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=local_clients.forget)


def connected(address: Address) -> tuple[Connection, QdrantClient, Callable[[], None]]:
    """A connection to an address, its sync client, and what closes it.

    Raises:
        ConfigurationError: The environment variable for the key is not set.
        StoreUnavailableError: Another process has the directory open.
    """
    where = str(address)
    try:
        client, close = _local(address.path) if address.path is not None else _remote(address)
    except Exception as error:
        meant = meaning(error, where)
        if meant is error:
            raise
        raise meant from error
    aclient = None if address.path is not None else AsyncQdrantClient(**client.init_options)
    connection = Connection(client, aclient, where=where)

    def close_all() -> None:
        connection.close_async()
        close()

    return connection, client, close_all


def _local(path: str) -> tuple[QdrantClient, Callable[[], None]]:
    if path == MEMORY:
        client = QdrantClient(MEMORY)
        return client, client.close
    return local_clients.acquire(path)


def _remote(address: Address) -> tuple[QdrantClient, Callable[[], None]]:
    key = address.api_key()
    # The client warns of keys that go unencrypted; on this machine nobody else can read them.
    quiet = key is not None and urlsplit(address.url or "").hostname in _LOOPBACK
    client = QdrantClient(
        url=address.url,
        port=None,
        api_key=None if quiet else key,
        headers={"api-key": key} if quiet and key is not None else None,
        timeout=address.timeout_s,
        prefer_grpc=address.prefer_grpc,
        check_compatibility=False,  # it warns, from a thread; what depends on the version asks
    )
    return client, client.close
