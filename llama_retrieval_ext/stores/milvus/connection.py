"""`Connection`: a Milvus client whose errors are those of this package."""

# pymilvus declares some results more widely than its blocking client returns them.
# pyright: reportAttributeAccessIssue=false

import contextlib
import weakref
from collections.abc import Callable
from typing import Final, TypeVar

import grpc
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from llama_retrieval_ext.errors import StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.stores.milvus.address import Address
from llama_retrieval_ext.stores.milvus.failures import meaning
from llama_retrieval_ext.stores.milvus.lite_files import lite_files
from llama_retrieval_ext.stores.milvus.server_version import check_version, is_lite

T = TypeVar("T")

# Otherwise a connection that was cut is not tried again for a while, also by who comes new.
_OPTIONS: Final = {
    "grpc.use_local_subchannel_pool": 1,
    "grpc.initial_reconnect_backoff_ms": 100,
    # Not a pause: how long one attempt to connect may take, at least. Machines are slow at times.
    "grpc.min_reconnect_backoff_ms": 5000,
    "grpc.max_reconnect_backoff_ms": 1000,
}


class Connection:
    """Asks one Milvus, from any thread.

    pymilvus's async client is bound to the event loop it was made on, and breaks on the next; so
    async callers wait in a thread for this one, whose requests leave the interpreter's lock free.

    Args:
        address: Where.

    Attributes:
        is_lite: Whether it is Milvus Lite, as a file or as a server.

    Raises:
        ConfigurationError: The address names an environment variable that is not set, or the server
            is too old.
        StoreUnavailableError: It cannot be reached, refuses the credentials, or another process has
            the file open.
    """

    def __init__(self, address: Address) -> None:
        self.where = address.where
        self.timeout_s = address.timeout_s
        self._client = _opened(address)
        # Also when the store is garbage, and at the interpreter's exit.
        self._closer = weakref.finalize(self, _close, self._client, address)
        try:
            told = self.ask(lambda client: client.get_server_version(timeout=self.timeout_s))
            version = str(told)
            check_version(version, self.where)
        except BaseException:
            self.close()
            raise
        self.is_lite = is_lite(version)

    @property
    def client(self) -> MilvusClient:
        """Pymilvus's own client.

        Raises:
            StoreClosedError: The store was closed.
        """
        if not self._closer.alive:
            raise StoreClosedError(f"the store at {self.where} was closed; open it again")
        return self._client

    def ask(self, function: Callable[[MilvusClient], T]) -> T:
        """What a function gets from the client.

        Raises:
            StoreClosedError: The store was closed.
            StoreUnavailableError: Milvus cannot answer.
            StoreError: It refuses the request.
        """
        client = self.client
        try:
            return function(client)
        except (MilvusException, grpc.RpcError, grpc.FutureTimeoutError) as error:
            raise meaning(error, self.where) from error
        except (AttributeError, ValueError) as error:
            if self._closer.alive:
                raise
            # Another thread closed it meanwhile; pymilvus and grpc then raise these.
            raise StoreClosedError(
                f"the store at {self.where} was closed; open it again"
            ) from error

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self._closer()


def _opened(address: Address) -> MilvusClient:
    if address.path is None:
        return _connected(address, address.url)
    lite_files.acquire(address.path)
    try:
        return _connected(address, str(address.path))
    except BaseException:
        lite_files.release(address.path)
        raise


def _connected(address: Address, uri: str) -> MilvusClient:
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
        raise meaning(error, address.where) from error


def _close(client: MilvusClient, address: Address) -> None:
    with contextlib.suppress(MilvusException, grpc.RpcError, ValueError):
        client.close()
    if address.path is not None:
        lite_files.release(address.path)
