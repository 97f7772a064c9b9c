"""`MilvusConnection`: a Milvus client for all threads, with this package's errors."""

import contextlib
import re
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Final, TypeVar

import grpc
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from llama_retrieval_ext.errors import (
    ConfigurationError,
    MissingDependencyError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.engine.connection import Connection
from llama_retrieval_ext.stores.milvus.errors import translate_error
from llama_retrieval_ext.stores.milvus.url import Address

T = TypeVar("T")

# Otherwise a broken connection is not retried for a while, not even by a new client.
_OPTIONS: Final = {
    "grpc.use_local_subchannel_pool": 1,
    "grpc.initial_reconnect_backoff_ms": 100,
    # Not a pause, but the time limit of one connection attempt: some machines are slow.
    "grpc.min_reconnect_backoff_ms": 5000,
    "grpc.max_reconnect_backoff_ms": 1000,
}
_LITE: Final = "milvus_lite"
# The first version with BM25. Milvus 2.3 crashes on a collection with sparse vectors.
_MIN_VERSION: Final = (2, 5)
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")


class MilvusConnection(Connection):
    """Connection to one Milvus; threads may share it. A request is a function of the client.

    pymilvus's async client works only on the event loop that created it. So async callers use the
    blocking client in a thread; its requests release the interpreter's lock.

    Args:
        address: The server or file.
    """

    def __init__(self, address: Address) -> None:
        self.where = address.where
        self.timeout_s = address.timeout_s
        self._address = address
        self._client = _open(address)
        self._is_open = True
        try:
            version = str(
                self.perform(lambda client: client.get_server_version(timeout=self.timeout_s))
            )
            check_version(version, self.where)
        except BaseException:
            self.close()
            raise
        self.is_lite = is_lite(version)

    @property
    def client(self) -> MilvusClient:
        """The client of pymilvus; raises `StoreClosedError` after the store is closed."""
        if not self._is_open:
            raise self.closed_error()
        return self._client

    def perform(self, request: Callable[[MilvusClient], T]) -> T:
        """Call a function with the client."""
        client = self.client
        try:
            return request(client)
        except (MilvusException, grpc.RpcError, grpc.FutureTimeoutError) as error:
            raise translate_error(error, self.where) from error
        except (AttributeError, ValueError) as error:
            if self._is_open:
                raise
            # pymilvus and grpc raise these if another thread closed the client meanwhile.
            raise self.closed_error() from error

    def close(self) -> None:
        """Close the client; idempotent."""
        if self._is_open:
            self._is_open = False
            _close(self._client, self._address)


def _open(address: Address) -> MilvusClient:
    if address.path is None:
        return _connect(address, address.url)
    lite_files.acquire(address.path)
    try:
        return _connect(address, str(address.path))
    except BaseException:
        lite_files.release(address.path)
        raise


def _connect(address: Address, uri: str) -> MilvusClient:
    token = address.token()
    try:
        return MilvusClient(
            uri,
            token=token,
            db_name=address.db_name,
            timeout=address.timeout_s,
            dedicated=True,
            grpc_options=_OPTIONS,
        )
    except (MilvusException, grpc.RpcError, grpc.FutureTimeoutError) as error:
        if address.path is not None:
            raise StoreUnavailableError(
                f"Milvus Lite cannot open {address.path}: another process has it open, or it is no "
                "such file; close it there, or run `milvus-lite server` and name it by URL"
            ) from error
        raise translate_error(error, address.where) from error


def _close(client: MilvusClient, address: Address) -> None:
    with contextlib.suppress(MilvusException, grpc.RpcError, ValueError):
        client.close()
    if address.path is not None:
        lite_files.release(address.path)


class LiteFiles:
    """Reference counts of the open files of Milvus Lite.

    pymilvus runs one server per file in this process, and stops it only at the interpreter's exit:
    until then no other process can open the file. So the last release stops the server.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._users: Counter[Path] = Counter()

    def acquire(self, path: Path) -> None:
        """Add a user of a file; each user must call `release` once."""
        if find_spec("milvus_lite") is None:
            raise MissingDependencyError("Milvus Lite", "milvus")
        with self._lock:
            self._users[path] += 1

    def release(self, path: Path) -> None:
        """Release a file; stop its server after the last release."""
        with self._lock:
            self._users[path] -= 1
            if not self._users[path]:
                del self._users[path]
                _stop_server(path)


def _stop_server(path: Path) -> None:
    from milvus_lite.server_manager import (  # noqa: PLC0415 - half a second, and for files only
        server_manager_instance,
    )

    server_manager_instance.release_server(str(path))


# Module state, because the servers are per process.
lite_files: Final = LiteFiles()


def is_lite(version: str) -> bool:
    """Return whether a version is of Milvus Lite."""
    return version.startswith(_LITE)


def check_version(version: str, where: str) -> None:
    """Raise if a server is too old; a version without numbers passes.

    Examples:
        >>> check_version("v2.6.4", "http://db:19530")
        >>> check_version("v2.3.5-lite", "http://db:19530")
        Traceback (most recent call last):
        llama_retrieval_ext.errors.ConfigurationError: Milvus at http://db:19530 is v2.3.5-lite, \
and must be 2.5 or newer, for keyword search; use a newer server, or a file of Milvus Lite: \
milvus:./file.db

    """
    numbers = _VERSION.match(version)
    if not is_lite(version) and numbers and tuple(map(int, numbers.groups())) < _MIN_VERSION:
        raise ConfigurationError(
            f"Milvus at {where} is {version}, and must be {'.'.join(map(str, _MIN_VERSION))} or "
            "newer, for keyword search; use a newer server, or a file of Milvus Lite: "
            "milvus:./file.db"
        )
