"""`MilvusConnection`: a Milvus client for all threads; URLs and errors."""

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self, TypeVar
from urllib.parse import unquote

import grpc
from pymilvus import MilvusClient
from pymilvus.client.entity_helper import entity_is_sparse_matrix
from pymilvus.exceptions import (
    ConnectError,
    ConnectionConfigException,
    ConnectionNotExistException,
    MilvusException,
    MilvusUnavailableException,
)

from llama_retrieval_ext.errors import (
    ConfigurationError,
    MissingDependencyError,
    StoreError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.engine.collection import CollectionMissingError
from llama_retrieval_ext.stores.engine.connection import Connection, SharedByPath
from llama_retrieval_ext.urls import Address, UrlForm, local_path

T = TypeVar("T")

# pymilvus loads scipy.sparse at the first search, in a way that fails in two threads at once.
entity_is_sparse_matrix([])

FORM: Final = UrlForm(
    engine="Milvus",
    scheme="milvus",
    example="milvus://host:19530/collection (milvuss:// for TLS), or milvus:./file.db",
    credentials="?token_env=NAME",
    options=("token_env", "user_env", "password_env", "db_name", "timeout_s"),
    local_options=("collection", "timeout_s"),
    has_prefix=False,
    timeout_s=10.0,
    name_pattern="[A-Za-z_][A-Za-z0-9_]{0,254}",
    name_rule="up to 255 letters without accents, digits and '_', and does not begin with a digit",
)
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
CLIENT_ERRORS: Final = (MilvusException, grpc.RpcError, grpc.FutureTimeoutError)

_NOT_FOUND: Final = 100
# Codes for collections that are not loaded, or not fully.
_RELEASED: Final = {101, 103, 104}
# Unavailable, out of memory, too many requests, rate limit, quota, and lagging clocks.
_UNAVAILABLE: Final = {2, 3, 4, 8, 9, 10, 11}
_UNREACHABLE_STATUS: Final = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
}
_LOST_SIGNS: Final = ("Fail connecting", "Retry timeout")
_DENIED: Final = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
_UNREACHABLE: Final = (
    ConnectError,
    ConnectionConfigException,
    ConnectionNotExistException,
    MilvusUnavailableException,
    grpc.FutureTimeoutError,
)


def parse_address(url: str) -> Address:
    """Parse the URL of a collection.

    Examples:
        >>> parse_address("milvuss://db.example.com/handbook?token_env=KEY").url
        'https://db.example.com:19530'
        >>> parse_address("milvus:./kb.db?collection=handbook").collection
        'handbook'

    """
    address = FORM.parse(url)
    path = local_path(unquote(address.path))
    if address.path and (path.suffix != ".db" or not path.parent.is_dir()):
        raise ConfigurationError(
            f"got the file {str(path)!r}; Milvus Lite takes a name that ends in .db, in a folder "
            "that exists: milvus:./file.db"
        )
    return replace(address, path=str(path)) if address.path else address


class MilvusConnection(Connection):
    """Connection to one Milvus; threads may share it. A request is a function of the client.

    pymilvus's async client works only on the event loop that created it. So async callers use the
    blocking client in a thread; its requests release the interpreter's lock.
    """

    def __init__(self, address: Address) -> None:
        self.where = address.url or address.path
        self.timeout_s = address.timeout_s
        self._client: MilvusClient | None = None
        # The server of a file, which this connection uses.
        self._shared = _lite_servers.acquire(Path(address.path)) if address.path else None
        try:
            self._client = _connected(address)
            version = str(self.perform(lambda c: c.get_server_version(timeout=self.timeout_s)))
            check_version(version, self.where)
        except BaseException:
            self.close()
            raise
        self.is_lite = is_lite(version)

    @classmethod
    def of_address(cls, address: Address) -> Self:
        """Connect to the server or file of an address."""
        return cls(address)

    @property
    def client(self) -> MilvusClient:
        """The client of pymilvus; raises `StoreClosedError` after the store is closed."""
        if self._client is None:
            raise self.closed_error()
        return self._client

    def perform(self, request: Callable[[MilvusClient], T]) -> T:
        """Call a function with the client."""
        client = self.client
        try:
            return request(client)
        except CLIENT_ERRORS as error:
            raise translate_error(error, self.where) from error
        except (AttributeError, ValueError) as error:
            if self._client is not None:
                raise
            # pymilvus and grpc raise these if another thread closed the client meanwhile.
            raise self.closed_error() from error

    def close(self) -> None:
        """Close the client; idempotent."""
        client, shared, self._client, self._shared = self._client, self._shared, None, None
        if client is not None:
            with contextlib.suppress(MilvusException, grpc.RpcError, ValueError):
                client.close()
        if shared is not None:
            _lite_servers.release(shared)


def token_of(address: Address) -> str:
    """Return the credentials, read now; raise if an environment variable is not set."""
    return ":".join(address.secrets("token_env") or address.secrets("user_env", "password_env"))


def _connected(address: Address) -> MilvusClient:
    token = token_of(address)
    try:
        return MilvusClient(
            address.url or address.path,
            token=token,
            db_name=address.options.get("db_name", ""),
            timeout=address.timeout_s,
            dedicated=True,
            grpc_options=_OPTIONS,
        )
    except CLIENT_ERRORS as error:
        if address.path:
            raise StoreUnavailableError(
                f"Milvus Lite cannot open {address.path}: another process has it open, or it is no "
                "such file; close it there, or run `milvus-lite server` and name it by URL"
            ) from error
        raise translate_error(error, address.url) from error


def _require_lite(path: Path) -> Path:
    if find_spec("milvus_lite") is None:
        raise MissingDependencyError("Milvus Lite", "milvus")
    return path


def _stop_server(path: Path) -> None:
    from milvus_lite.server_manager import server_manager_instance  # noqa: PLC0415 - half a second, and for files only

    server_manager_instance.release_server(str(path))


# pymilvus runs one server per file in this process, and stops it only at the interpreter's exit:
# until then no other process can open the file. So the last release stops the server.
_lite_servers: Final = SharedByPath(_require_lite, _stop_server)


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


def translate_error(error: Exception, where: str) -> StoreError:
    """Return this package's error for an error of the client."""
    reason = f"{type(error).__name__}: {getattr(error, 'message', '') or error}"[:500]
    code = getattr(error, "code", None)
    code = code() if callable(code) else code  # of gRPC
    if code in _DENIED or "auth check failure" in reason:
        return StoreUnavailableError(
            f"Milvus at {where} refused the credentials; name the environment variable that holds "
            f"the right token: ?token_env=NAME ({reason})"
        )
    lost = any(sign in reason for sign in _LOST_SIGNS)
    if isinstance(error, _UNREACHABLE) or code in _UNREACHABLE_STATUS or lost:
        return StoreUnavailableError(f"Milvus at {where} cannot be reached: {reason}")
    if code in _UNAVAILABLE:
        return StoreUnavailableError(f"Milvus at {where} cannot answer now: {reason}")
    if code == _NOT_FOUND:
        return CollectionMissingError(f"Milvus at {where} has no such collection: {reason}")
    return StoreError(f"Milvus at {where} refused the request: {reason}")


def call_loaded(
    client: MilvusClient,
    function: Callable[[MilvusClient], T],
    load: Callable[[MilvusClient], object],
) -> T:
    """Return the result of a function; load the collection first if it is not in memory."""
    try:
        return function(client)
    except MilvusException as error:
        message = error.message
        if not (error.code in _RELEASED or "not loaded" in message or "released" in message):
            raise
    load(client)
    return function(client)
