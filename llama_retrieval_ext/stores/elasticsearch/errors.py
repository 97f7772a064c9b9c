"""Translation of Elasticsearch client and server errors into errors of this package."""

from typing import Final

from elastic_transport import ConnectionTimeout, TransportError
from elasticsearch import ApiError, UnsupportedProductError

from llama_retrieval_ext.errors import StoreError, StoreUnavailableError
from llama_retrieval_ext.stores.elasticsearch.encoding import Json

_DENIED: Final = {401: "does not accept the credentials", 403: "does not allow it"}
_TOO_BUSY: Final = 429
_SERVER_ERROR: Final = 500
# Reasons in answers for a new index, and of a server that is starting.
_SHARDS_MISSING: Final = (
    "no_shard_available",
    "missing shards",
    "state not recovered",
    "illegal_index_shard_state",
)


class ShardsMissingError(StoreUnavailableError):
    """Shards of an index are not available, and may be starting."""


def translate_error(error: Exception, where: str) -> StoreError:
    """Return this package's error for an error of the client."""
    if isinstance(error, ConnectionTimeout):
        return StoreUnavailableError(f"Elasticsearch at {where} did not answer in time")
    if isinstance(error, TransportError):
        return StoreUnavailableError(f"Elasticsearch at {where} cannot be reached: {error.message}")
    if isinstance(error, UnsupportedProductError):
        return StoreUnavailableError(f"what answers at {where} is not Elasticsearch")
    if isinstance(error, ApiError):
        return error_of_part(error.status_code, error.body, where)
    return StoreError(f"Elasticsearch at {where}: {error}")


def error_of_part(status: int, body: object, where: str) -> StoreError:
    """Return the error for the HTTP status of an answer, or of one part of an answer."""
    reason = _reason(body)
    if status in _DENIED:
        return StoreUnavailableError(
            f"Elasticsearch at {where} {_DENIED[status]} (HTTP {status}): {reason}; check the "
            "environment variables that the URL names as api_key_env, or user_env and password_env"
        )
    starting = any(sign in reason for sign in _SHARDS_MISSING)
    if starting or status == _TOO_BUSY or status >= _SERVER_ERROR:
        kind = ShardsMissingError if starting else StoreUnavailableError
        return kind(f"Elasticsearch at {where} is in trouble: {reason}")
    return StoreError(f"Elasticsearch at {where} refused the request (HTTP {status}): {reason}")


def _reason(body: object) -> str:
    """Return the innermost reason in an error answer."""
    error: object = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return str(error)[:500]
    causes: list[Json] = error.get("root_cause") or [error]
    inner = error.get("caused_by", causes[0])
    return f"{inner.get('type')}: {inner.get('reason')}"[:500]
