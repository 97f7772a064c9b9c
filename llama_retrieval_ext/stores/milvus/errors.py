"""What the client's errors mean in the words of this package."""

from typing import Final

import grpc
from pymilvus.exceptions import (
    ConnectError,
    ConnectionConfigException,
    ConnectionNotExistException,
    MilvusException,
    MilvusUnavailableException,
)

from llama_retrieval_ext.errors import StoreError, StoreUnavailableError

_NOT_FOUND: Final = 100
# Not loaded, and not fully loaded.
_RELEASED: Final = {101, 103, 104}
# Unavailable, out of memory, too many requests, rate limit, quota, and clocks that lag behind.
_IN_TROUBLE: Final = {2, 3, 4, 8, 9, 10, 11}
_AWAY: Final = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
}
_LOST: Final = ("Fail connecting", "Retry timeout")
_REFUSED: Final = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
_UNREACHABLE: Final = (
    ConnectError,
    ConnectionConfigException,
    ConnectionNotExistException,
    MilvusUnavailableException,
    grpc.FutureTimeoutError,
)


class CollectionMissingError(StoreError):
    """There is no such collection: nothing was added yet, or somebody removed it."""


def meaning(error: Exception, where: str) -> StoreError:
    """The error of ours for one of the client's.

    Args:
        error: What the client raised.
        where: The store, as it may be shown.
    """
    told = f"{type(error).__name__}: {getattr(error, 'message', '') or error}"[:500]
    code = _code(error)
    if code in _REFUSED or "auth check failure" in told:
        return StoreUnavailableError(
            f"Milvus at {where} refused the credentials; name the environment variable that holds "
            f"the right token: ?token_env=NAME ({told})"
        )
    lost = any(sign in told for sign in _LOST)
    if isinstance(error, _UNREACHABLE) or code in _AWAY or lost:
        return StoreUnavailableError(f"Milvus at {where} cannot be reached: {told}")
    if code in _IN_TROUBLE:
        return StoreUnavailableError(f"Milvus at {where} cannot answer now: {told}")
    if code == _NOT_FOUND:
        return CollectionMissingError(f"Milvus at {where} has no such collection: {told}")
    return StoreError(f"Milvus at {where} refused the request: {told}")


def is_released(error: Exception) -> bool:
    """Whether a collection only has to be loaded into memory."""
    return isinstance(error, MilvusException) and (
        _code(error) in _RELEASED or "not loaded" in error.message or "released" in error.message
    )


def _code(error: Exception) -> object:
    if isinstance(error, MilvusException):
        return error.code
    return error.code() if isinstance(error, grpc.Call) else None
