"""What the client's errors mean in the words of this package."""

from typing import Final

from elastic_transport import ConnectionTimeout, TransportError
from elasticsearch import ApiError, UnsupportedProductError

from llama_retrieval_ext.errors import StoreError, StoreUnavailableError
from llama_retrieval_ext.stores.elasticsearch.requests import Json

_REFUSED: Final = {401: "does not accept the credentials", 403: "does not allow it"}
_TOO_BUSY: Final = 429
_BROKEN: Final = 500
# As an index that was just made says, and a server that was just started.
_AWAY: Final = ("no_shard_available", "missing shards", "state not recovered")


class ShardsAwayError(StoreUnavailableError):
    """Shards of an index are not there, and may be on their way."""


def meaning(error: Exception, where: str) -> StoreError:
    """The error of ours for one of the client's."""
    if isinstance(error, ConnectionTimeout):
        return StoreUnavailableError(f"Elasticsearch at {where} did not answer in time")
    if isinstance(error, TransportError):
        return StoreUnavailableError(f"Elasticsearch at {where} cannot be reached: {error.message}")
    if isinstance(error, UnsupportedProductError):
        return StoreUnavailableError(f"what answers at {where} is not Elasticsearch")
    if isinstance(error, ApiError):
        return of_status(error.status_code, error.body, where)
    return StoreError(f"Elasticsearch at {where}: {error}")


def of_status(status: int, body: object, where: str) -> StoreError:
    """The error of ours for what the engine answered, to a request or to a part of one."""
    told = reason(body)
    if status in _REFUSED:
        return StoreUnavailableError(
            f"Elasticsearch at {where} {_REFUSED[status]} (HTTP {status}): {told}; check the "
            "environment variables that the URL names as api_key_env, or user_env and password_env"
        )
    if status == _TOO_BUSY or status >= _BROKEN:
        kind = ShardsAwayError if any(sign in told for sign in _AWAY) else StoreUnavailableError
        return kind(f"Elasticsearch at {where} is in trouble: {told}")
    return StoreError(f"Elasticsearch at {where} refused the request (HTTP {status}): {told}")


def reason(body: object) -> str:
    """Why the engine refused: its innermost reason."""
    error: object = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return str(error)[:500]
    causes: list[Json] = error.get("root_cause") or [error]
    inner = error.get("caused_by", causes[0])
    return f"{inner.get('type')}: {inner.get('reason')}"[:500]


def error_type(error: Exception) -> str:
    """The engine's own name of an error; empty where it has none."""
    body = error.body if isinstance(error, ApiError) else None
    told = body.get("error") if isinstance(body, dict) else None
    return str(told.get("type")) if isinstance(told, dict) else ""
