"""Translation of Milvus client errors into errors of this package."""

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
from llama_retrieval_ext.stores.engine.collection import CollectionMissingError

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


def translate_error(error: Exception, where: str) -> StoreError:
    """Return this package's error for an error of the client."""
    reason = f"{type(error).__name__}: {getattr(error, 'message', '') or error}"[:500]
    code = _code(error)
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


def is_released(error: Exception) -> bool:
    """Return whether the error means that the collection is not loaded into memory."""
    return isinstance(error, MilvusException) and (
        _code(error) in _RELEASED or "not loaded" in error.message or "released" in error.message
    )


def _code(error: Exception) -> object:
    if isinstance(error, MilvusException):
        return error.code
    return error.code() if isinstance(error, grpc.Call) else None
