"""Translation of the errors of Qdrant's client, which depend on the kind of connection."""

import sqlite3
from collections.abc import Mapping
from typing import Final

import grpc
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from llama_retrieval_ext.errors import (
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.engine.collection import CollectionMissingError

_REFUSED: Final = {401, 403}
_NOT_FOUND: Final = 404
_BUSY: Final = {408, 429}
_BROKEN: Final = 500
# HTTP status by gRPC code.
_RPC: Final[Mapping[object, int]] = {
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}


def translate_error(error: Exception, where: str) -> Exception:
    """Return our error for a client error; return other errors unchanged."""
    if isinstance(error, UnexpectedResponse):
        status, content = error.status_code or 0, error.content[:500].decode(errors="replace")
        return _of_status(status, f"{status} {error.reason_phrase}: {content}", where)
    if isinstance(error, ResponseHandlingException):
        return _of_transport(error.source, where)
    if isinstance(error, ResourceExhaustedResponse):
        return StoreUnavailableError(f"{where} gets too many requests: {error}; try again later")
    if isinstance(error, grpc.RpcError):
        called = isinstance(error, grpc.Call)
        code, details = (error.code(), error.details()) if called else (None, error)
        return _of_status(_RPC.get(code, 0), f"{code}: {details}", where)
    return _of_local_mode(error, where)


def _of_transport(error: Exception, where: str) -> StoreError:
    if "client has been closed" in str(error):
        return StoreClosedError(f"{where} was closed; open it again")
    return StoreUnavailableError(
        f"{where} cannot be reached, or what answers is no Qdrant: {_described(error)}; "
        "check host, port and whether the server runs"
    )


def _of_status(status: int, message: str, where: str) -> StoreError:
    if status in _REFUSED:
        return StoreUnavailableError(
            f"{where} refused the credentials; name the environment variable that holds the right "
            "key: ?api_key_env=NAME"
        )
    if status == _NOT_FOUND:
        return CollectionMissingError(f"{where} has no such collection: {message}")
    if status in _BUSY or status >= _BROKEN:
        return StoreUnavailableError(f"{where} cannot answer now: {message}")
    return StoreError(f"{where} refused the request: {message}")


def _of_local_mode(error: Exception, where: str) -> Exception:
    message = str(error)
    if (
        isinstance(error, ValueError)
        and message.startswith("Collection")
        and "not found" in message
    ):
        return CollectionMissingError(f"{where}: {message}")
    if isinstance(error, RuntimeError) and "instance is closed" in message:
        return StoreClosedError(f"{where} was closed; open it again")
    if isinstance(error, RuntimeError) and "already accessed" in message:
        return StoreUnavailableError(
            f"another process, or another client in this one, has {where} open; close it there, or "
            "use a server"
        )
    if isinstance(error, sqlite3.Error | OSError):
        return StoreUnavailableError(f"{where} cannot be read or written: {_described(error)}")
    return error


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
