"""`Transport`: sends requests to a cluster from threads and event loops."""

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias, TypeVar
from urllib.parse import quote

from elastic_transport import NodeConfig, TransportError
from elasticsearch import ApiError, AsyncElasticsearch, Elasticsearch
from pydantic_core import to_json

from llama_retrieval_ext.execution.context import current_context
from llama_retrieval_ext.stores.elasticsearch.encoding import Json
from llama_retrieval_ext.stores.elasticsearch.errors import (
    ShardsMissingError,
    error_of_part,
    translate_error,
)
from llama_retrieval_ext.stores.elasticsearch.url import DEFAULT_TIMEOUT_S, Address
from llama_retrieval_ext.stores.engine.connection import AsyncClient, Connection

T = TypeVar("T")

_JSON: Final = "application/vnd.elasticsearch+json; compatible-with=8"
_LINES: Final = "application/vnd.elasticsearch+x-ndjson; compatible-with=8"
_OK: Final = 200
# The client retries when the server has closed an idle connection.
_RETRIES: Final = 2
# For an expired deadline: the client rejects a timeout of 0.
_MIN_TIMEOUT_S: Final = 1e-3
# About five seconds in all: a shard of a new index starts in tenths of a second, or later on a
# busy machine. Waiting on the server needs the "monitor" privilege, which few users have.
_RETRY_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0)


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; its path is quoted."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: {"accept": _JSON})


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait in place of a request; its answer is empty."""

    seconds: float


# A generator that yields requests and receives each JSON answer: works with threads and loops.
Requests: TypeAlias = Generator[Request | Pause, Json, T]


def json_request(
    method: str, *path: str, params: Mapping[str, str] | None = None, body: Json | None = None
) -> Request:
    """Return a request with a JSON body, or without a body.

    Examples:
        >>> json_request("GET", "my index", "_count").path
        '/my%20index/_count'

    """
    if body is None:
        return Request(method, _joined(path), params or {})
    headers = {"accept": _JSON, "content-type": _JSON}
    return Request(method, _joined(path), params or {}, to_json(body), headers)


def lines_request(*path: str, lines: Iterable[bytes]) -> Request:
    """Return a POST with one JSON document per line, for ``_bulk`` and ``_msearch``."""
    headers = {"accept": _JSON, "content-type": _LINES}
    return Request("POST", _joined(path), {}, b"\n".join([*lines, b""]), headers)


def _joined(path: Iterable[str]) -> str:
    return "".join(f"/{quote(segment, safe='')}" for segment in path)


def read(request: Request, decode: Callable[[Json], T]) -> Requests[T]:
    """Return the decoded answer to a read-only request; retry while shards are starting."""
    for pause_s in _RETRY_PAUSES_S:
        try:
            return decode((yield request))
        except ShardsMissingError:
            left_s = _remaining_s()
            if left_s is not None and pause_s >= left_s:
                raise
        yield Pause(pause_s)
    return decode((yield request))


def hits_of(answer: Json) -> list[Json]:
    """Return the hits of a search's answer."""
    hits: list[Json] = answer["hits"]["hits"]
    return hits


def hits_of_part(part: Json, index: str) -> list[Json]:
    """Return the hits of one answer of a multi-search."""
    status = part.get("status", _OK)
    if status != _OK:
        raise error_of_part(status, part, index)
    return hits_of(part)


@dataclass(frozen=True)
class ClientConfig:
    """Hosts and options of a cluster's client."""

    hosts: tuple[str | NodeConfig, ...]
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeout_s: float = DEFAULT_TIMEOUT_S

    @classmethod
    def of_address(cls, address: Address) -> Self:
        """Return the configuration for an address; read the credentials now."""
        return cls((address.url,), address.client_options(), address.timeout_s)

    @classmethod
    def of_client(cls, client: AsyncElasticsearch | Elasticsearch) -> Self:
        """Return the configuration of an existing client, to make other clients like it."""
        hosts = tuple(node.config for node in client.transport.node_pool.all())
        # The client has no public access to its credentials.
        return cls(hosts, {"headers": dict(client._headers)})  # noqa: SLF001

    @property
    def where(self) -> str:
        """The hosts, for messages; never credentials."""
        names = [
            host if isinstance(host, str) else f"{host.scheme}://{host.host}:{host.port}"
            for host in self.hosts
        ]
        return ", ".join(names)

    def client(self) -> Elasticsearch:
        """Return a new blocking client."""
        return Elasticsearch(list(self.hosts), **self._arguments())

    def async_client(self) -> AsyncElasticsearch:
        """Return a new async client; it is bound to the first event loop that uses it."""
        return AsyncElasticsearch(list(self.hosts), **self._arguments())

    def _arguments(self) -> dict[str, Any]:
        return {**self.options, "request_timeout": self.timeout_s, "max_retries": _RETRIES}


class Transport(Connection):
    """Sends requests. Threads share one client; event loops share another.

    Args:
        config: Hosts and options of the cluster.
    """

    real_async = True

    def __init__(self, config: ClientConfig) -> None:
        self.where = config.where
        self.config = config
        self.client = config.client()
        self._async = AsyncClient(config.async_client, self.closed_error)
        self.closed = False

    def close(self) -> None:
        """Close both clients."""
        self.closed = True
        self.client.close()
        self._async.close()

    def send(self, request: Request) -> Json:
        """Return the answer to one request; blocks."""
        if self.closed:
            raise self.closed_error()
        with _translated(self.where):
            return _perform(_limited(self.client, _limit_s(self.config)), request).body  # type: ignore[no-any-return]  # the client's Any

    async def asend(self, request: Request) -> Json:
        """Return the answer to one request, without blocking the event loop."""
        limit_s = _limit_s(self.config)
        with _translated(self.where):
            answer = await self._async.run(
                lambda client: _perform(_limited(client, limit_s), request)
            )
        return answer.body  # type: ignore[no-any-return]  # the client's Any

    def perform(self, request: Request | Pause) -> Json:
        """Return the answer to a request, or wait for a pause; blocks."""
        if isinstance(request, Request):
            return self.send(request)
        time.sleep(request.seconds)
        return {}

    async def aperform(self, request: Request | Pause) -> Json:
        """Return the same as `perform`, without blocking the event loop."""
        if isinstance(request, Request):
            return await self.asend(request)
        await asyncio.sleep(request.seconds)
        return {}


@contextmanager
def _translated(where: str) -> Iterator[None]:
    try:
        yield
    except (ApiError, TransportError) as error:
        raise translate_error(error, where) from error


C = TypeVar("C", Elasticsearch, AsyncElasticsearch)


def _perform(client: Elasticsearch | AsyncElasticsearch, request: Request) -> Any:  # noqa: ANN401 - an answer, or its coroutine
    return client.perform_request(
        request.method,
        request.path,
        params=request.params,
        headers=request.headers,
        body=request.body,
    )


def _limit_s(config: ClientConfig) -> float | None:
    """Return the remaining time of the query where that is less than the timeout; else None."""
    left_s = _remaining_s()
    return None if left_s is None or left_s >= config.timeout_s else max(left_s, _MIN_TIMEOUT_S)


def _limited(client: C, limit_s: float | None) -> C:
    return client if limit_s is None else client.options(request_timeout=limit_s)


def _remaining_s() -> float | None:
    return current_context().remaining_s()
