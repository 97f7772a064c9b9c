"""Errors of Qdrant's client as ours; they differ by the kind of connection."""

import sqlite3
from typing import Final

import grpc
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from llama_retrieval_ext.errors import (
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
)

_REFUSED: Final = {401, 403}
_NOT_FOUND: Final = 404
_BUSY: Final = {408, 429}
_BROKEN: Final = 500
_RPC_REFUSED: Final = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
_RPC_AWAY: Final = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INTERNAL,
}


class CollectionMissingError(StoreError):
    """There is no such collection: nothing was added yet, or it was removed."""


def translate_error(error: Exception, where: str) -> Exception:
    """Return our error for one of the client's; any other unchanged."""
    if isinstance(error, UnexpectedResponse):
        return _of_status(error, where)
    if isinstance(error, ResponseHandlingException):
        return _of_transport(error.source, where)
    if isinstance(error, ResourceExhaustedResponse):
        return StoreUnavailableError(f"{where} is asked too often: {error}; try again later")
    if isinstance(error, grpc.RpcError):
        return _of_rpc(error, where)
    return _of_local_mode(error, where)


def refused_credentials(where: str) -> StoreUnavailableError:
    """Return the error for refused credentials."""
    return StoreUnavailableError(
        f"{where} refused the credentials; name the environment variable that holds the right key: "
        "?api_key_env=NAME"
    )


def _of_transport(error: Exception, where: str) -> StoreError:
    if "client has been closed" in str(error):
        return StoreClosedError(f"{where} was closed; open it again")
    return StoreUnavailableError(
        f"{where} cannot be reached, or what answers is no Qdrant: {_described(error)}; "
        "check host, port and whether the server runs"
    )


def _of_status(error: UnexpectedResponse, where: str) -> StoreError:
    status = error.status_code or 0
    message = f"{status} {error.reason_phrase}: {error.content[:500].decode(errors='replace')}"
    if status in _REFUSED:
        return refused_credentials(where)
    if status == _NOT_FOUND:
        return CollectionMissingError(f"{where} has no such collection: {message}")
    if status in _BUSY or status >= _BROKEN:
        return StoreUnavailableError(f"{where} cannot answer now: {message}")
    return StoreError(f"{where} refused the request: {message}")


def _of_rpc(error: grpc.RpcError, where: str) -> StoreError:
    code = error.code() if isinstance(error, grpc.Call) else None
    message = f"{code}: {error.details() if isinstance(error, grpc.Call) else error}"
    if code in _RPC_REFUSED:
        return refused_credentials(where)
    if code is grpc.StatusCode.NOT_FOUND:
        return CollectionMissingError(f"{where} has no such collection: {message}")
    if code in _RPC_AWAY:
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
