"""`Transport`: sends requests to a cluster from threads and event loops; URLs and errors."""

import asyncio
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias, TypeVar
from urllib.parse import quote

from elastic_transport import ConnectionTimeout, NodeConfig, TransportError
from elasticsearch import ApiError, AsyncElasticsearch, Elasticsearch, UnsupportedProductError
from pydantic_core import to_json

from llama_retrieval_ext.errors import ConfigurationError, StoreError, StoreUnavailableError
from llama_retrieval_ext.execution.context import current_context
from llama_retrieval_ext.execution.plan import Sleep
from llama_retrieval_ext.stores.engine.connection import AsyncClient, Connection
from llama_retrieval_ext.urls import Address, UrlForm

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]  # Any: JSON of the engine

FORM: Final = UrlForm(
    engine="Elasticsearch",
    scheme="elasticsearch",
    example="elasticsearch://host:9200/index (elasticsearchs:// for TLS)",
    credentials="?api_key_env=NAME, or ?user_env=NAME&password_env=NAME",
    options=("api_key_env", "user_env", "password_env", "ca_certs", "timeout_s"),
    kind="index",
    # Stricter than Elasticsearch's rule: excludes names that could match several indices.
    name_pattern="[a-z0-9][a-z0-9._-]{0,199}",
    name_rule="1 to 200 small letters, digits, '.', '_' or '-', and begins with a letter or digit",
)
_JSON: Final = "application/vnd.elasticsearch+json; compatible-with=8"
_LINES: Final = "application/vnd.elasticsearch+x-ndjson; compatible-with=8"
# The client retries when the server has closed an idle connection.
_RETRIES: Final = 2
# For an expired deadline: the client rejects a timeout of 0.
_MIN_TIMEOUT_S: Final = 1e-3
# About five seconds in all: a shard of a new index starts in tenths of a second, or later on a
# busy machine. Waiting on the server needs the "monitor" privilege, which few users have.
_RETRY_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0)

_TOO_BUSY: Final = 429
_SERVER_ERROR: Final = 500
_DENIED: Final = {401: "does not accept the credentials", 403: "does not allow it"}
# Reasons in answers for a new index, and of a server that is starting.
_SHARDS_MISSING: Final = (
    "no_shard_available",
    "missing shards",
    "state not recovered",
    "illegal_index_shard_state",
)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request; its path is quoted."""

    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None = None


# A generator that yields requests and receives each JSON answer: works with threads and loops.
Requests: TypeAlias = Generator[HttpRequest | Sleep, Json, T]


def request_of(
    method: str,
    *path: str,
    params: Mapping[str, str] | None = None,
    body: Json | Sequence[bytes] | None = None,
) -> HttpRequest:
    """Return a request with a JSON body, with one JSON document a line, or without a body.

    Examples:
        >>> request_of("GET", "my index", "_count").path
        '/my%20index/_count'

    """
    place, headers = "".join(f"/{quote(segment, safe='')}" for segment in path), {"accept": _JSON}
    if body is None:
        return HttpRequest(method, place, params or {}, headers)
    headers["content-type"] = _JSON if isinstance(body, dict) else _LINES
    content = to_json(body) if isinstance(body, dict) else b"\n".join([*body, b""])
    return HttpRequest(method, place, params or {}, headers, content)


def read(request: HttpRequest, decode: Callable[[Json], T]) -> Requests[T]:
    """Return the decoded answer to a read-only request; retry while shards are starting."""
    for pause_s in _RETRY_PAUSES_S:
        try:
            return decode((yield request))
        except ShardsMissingError:
            left_s = current_context().remaining_s()
            if left_s is not None and pause_s >= left_s:
                raise
        yield Sleep(pause_s)
    return decode((yield request))


def hits_of(answer: Json) -> list[Json]:
    """Return the hits of a search's answer."""
    hits: list[Json] = answer["hits"]["hits"]
    return hits


class Transport(Connection):
    """Sends requests. Threads share one client; event loops share another.

    Args:
        hosts: The hosts of the cluster.
        options: Further arguments of the clients, such as credentials.
        timeout_s: Timeout of a request, in seconds.

    Attributes:
        where: The hosts, for messages; never credentials.
        client: The client for threads.
        closed: Whether `close` was called.
    """

    real_async = True

    def __init__(
        self,
        hosts: Sequence[str | NodeConfig],
        options: Mapping[str, Any],
        *,
        timeout_s: float = FORM.timeout_s,
    ) -> None:
        self.where = ", ".join(
            host if isinstance(host, str) else f"{host.scheme}://{host.host}:{host.port}"
            for host in hosts
        )
        self.timeout_s = timeout_s
        self.options = {**options, "request_timeout": timeout_s, "max_retries": _RETRIES}
        self.client = Elasticsearch(list(hosts), **self.options)
        self._async = AsyncClient(
            lambda: AsyncElasticsearch(list(hosts), **self.options), self.closed_error
        )
        self.closed = False

    @classmethod
    def of_address(cls, address: Address) -> Self:
        """Return a transport to the server of an address; read the credentials now."""
        names = address.options.keys()
        if "api_key_env" in names and names & {"user_env", "password_env"}:
            raise ConfigurationError("give an API key, or a user and a password, not both")
        options: dict[str, Any] = {}
        for api_key in address.secrets("api_key_env"):
            options["api_key"] = api_key
        if user := address.secrets("user_env", "password_env"):
            options["basic_auth"] = tuple(user)
        if address.options.get("ca_certs"):
            options["ca_certs"] = address.options["ca_certs"]
        return cls([address.url], options, timeout_s=address.timeout_s)

    @classmethod
    def of_client(cls, client: AsyncElasticsearch | Elasticsearch) -> Self:
        """Return a transport with clients of its own, to the cluster of an existing client."""
        hosts = [node.config for node in client.transport.node_pool.all()]
        # The client has no public access to its credentials.
        return cls(hosts, {"headers": dict(client._headers)})  # noqa: SLF001

    def close(self) -> None:
        """Close both clients."""
        self.closed = True
        self.client.close()
        self._async.close()

    def perform(self, request: HttpRequest | Sleep) -> Json:
        """Return the answer to a request, or wait; blocks."""
        if isinstance(request, Sleep):
            time.sleep(request.seconds)
            return {}
        if self.closed:
            raise self.closed_error()
        with self._translated():
            return self._send(self.client, request).body  # type: ignore[no-any-return]  # the client's Any

    async def aperform(self, request: HttpRequest | Sleep) -> Json:
        """Return the same as `perform`, without blocking the event loop."""
        if isinstance(request, Sleep):
            await asyncio.sleep(request.seconds)
            return {}
        with self._translated():
            answer = await self._async.run(lambda client: self._send(client, request))
        return answer.body  # type: ignore[no-any-return]  # the client's Any

    def _send(self, client: Elasticsearch | AsyncElasticsearch, request: HttpRequest) -> Any:  # noqa: ANN401 - an answer, or its coroutine
        """Send a request, with the remaining time of the query if that is less than the timeout."""
        left_s = current_context().remaining_s()
        if left_s is not None and left_s < self.timeout_s:
            client = client.options(request_timeout=max(left_s, _MIN_TIMEOUT_S))
        return client.perform_request(
            request.method,
            request.path,
            params=request.params,
            headers=request.headers,
            body=request.body,
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (ApiError, TransportError) as error:
            raise translate_error(error, self.where) from error


class ShardsMissingError(StoreUnavailableError):
    """Shards of an index are not available, and may be starting."""


def translate_error(error: ApiError | TransportError, where: str) -> StoreError:
    """Return this package's error for an error of the client."""
    if isinstance(error, ConnectionTimeout):
        return StoreUnavailableError(f"Elasticsearch at {where} did not answer in time")
    if isinstance(error, TransportError):
        return StoreUnavailableError(f"Elasticsearch at {where} cannot be reached: {error.message}")
    if isinstance(error, UnsupportedProductError):
        return StoreUnavailableError(f"what answers at {where} is not Elasticsearch")
    return error_of_part(error.status_code, error.body, where)


def error_of_part(status: int, body: object, where: str) -> StoreError:
    """Return the error for the HTTP status of an answer, or of one part of an answer."""
    error: object = body.get("error", body) if isinstance(body, dict) else body
    reason = str(error)[:500]
    if isinstance(error, dict):
        causes: list[Json] = error.get("root_cause") or [error]
        inner = error.get("caused_by", causes[0])  # the innermost reason
        reason = f"{inner.get('type')}: {inner.get('reason')}"[:500]
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
