"""Carries out steps against a server: on the caller's thread, or beside the caller's event loop."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

from elastic_transport import NodeConfig, TransportError
from elasticsearch import ApiError, AsyncElasticsearch, Elasticsearch

from llama_retrieval_ext.errors import StoreClosedError, StoreError
from llama_retrieval_ext.execution.context import current_context
from llama_retrieval_ext.execution.loop_thread import LoopThread
from llama_retrieval_ext.stores.elasticsearch.errors import ShardsAwayError, meaning
from llama_retrieval_ext.stores.elasticsearch.requests import Json, Pause, Request, Steps

T = TypeVar("T")


_ERRORS = (ApiError, TransportError)


# A query whose time is up before the request is sent: the client takes no timeout of 0.
_NO_TIME_S = 1e-3


DEFAULT_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class Connection:
    """How to reach a cluster.

    Args:
        hosts: URLs of its nodes, or what a client that exists already has in their place.
        options: What the clients are told besides: credentials, certificates. Never shown.
        timeout_s: Seconds a request may take; the deadline of a query may leave it less.
    """

    hosts: tuple[str | NodeConfig, ...]
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeout_s: float = DEFAULT_TIMEOUT_S

    @classmethod
    def of_client(cls, client: AsyncElasticsearch | Elasticsearch) -> Self:
        """The connection that a client has, for clients of our own."""
        hosts = tuple(node.config for node in client.transport.node_pool.all())
        # The client keeps the credentials it was given nowhere else.
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
        """A client for threads."""
        return Elasticsearch(list(self.hosts), **self._arguments())

    def async_client(self) -> AsyncElasticsearch:
        """A client for the event loop it is first used on."""
        return AsyncElasticsearch(list(self.hosts), **self._arguments())

    def _arguments(self) -> dict[str, Any]:
        return {**self.options, "request_timeout": self.timeout_s, "max_retries": _RETRIES}


class Transport:
    """Sends requests.

    Threads share one client. Event loops share another one, which has a loop of its own: the
    client's connections belong to the loop they were made on, and callers' loops come and go.

    Args:
        connection: How to reach the server.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.client = connection.client()
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self._async_client: AsyncElasticsearch | None = None
        self.closed = False

    def run(self, steps: Steps[T]) -> T:
        """The result of steps; blocks.

        Raises:
            StoreUnavailableError: The server cannot be reached, is late, or refuses credentials.
            StoreError: It refused a request.
            StoreClosedError: The store was closed.
        """
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._answered(request)
                except StoreError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # Any in every generator

    async def arun(self, steps: Steps[T]) -> T:
        """`run`, without blocking the event loop."""
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self._aanswered(request)
                except StoreError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # Any in every generator

    def close(self) -> None:
        """Close both clients."""
        with self._lock:
            self.closed = True
            loop, async_client = self._loop, self._async_client
            self._loop = self._async_client = None
        self.client.close()
        if loop is not None:
            loop.close(None if async_client is None else async_client.close())

    def send(self, request: Request) -> Json:
        """The answer to one request; blocks."""
        if self.closed:
            raise self._closed_error()
        client = self.client
        limit = _limit_s(self.connection)
        if limit is not None:
            client = client.options(request_timeout=limit)
        try:
            answer = client.perform_request(
                request.method,
                request.path,
                params=request.params,
                headers=request.headers,
                body=request.body,
            )
        except _ERRORS as error:
            raise meaning(error, self.connection.where) from error
        return answer.body  # type: ignore[no-any-return]  # the client's Any

    async def asend(self, request: Request) -> Json:
        """The answer to one request, without blocking the event loop."""
        loop, client = self._async_parts()
        limit = _limit_s(self.connection)
        if limit is not None:
            client = client.options(request_timeout=limit)
        sent = client.perform_request(
            request.method,
            request.path,
            params=request.params,
            headers=request.headers,
            body=request.body,
        )
        try:
            answer = await loop.run(sent)
        except _ERRORS as error:
            raise meaning(error, self.connection.where) from error
        except (RuntimeError, asyncio.CancelledError) as error:
            if not self.closed:
                raise
            # Another thread closed it meanwhile: the client raises one, or its loop the other.
            raise self._closed_error() from error
        return answer.body  # type: ignore[no-any-return]  # the client's Any

    def _answered(self, step: Request | Pause) -> Json:
        if isinstance(step, Request):
            return self.send(step)
        time.sleep(step.seconds)
        return {}

    async def _aanswered(self, step: Request | Pause) -> Json:
        if isinstance(step, Request):
            return await self.asend(step)
        await asyncio.sleep(step.seconds)
        return {}

    def _async_parts(self) -> tuple[LoopThread, AsyncElasticsearch]:
        with self._lock:
            if self.closed:
                raise self._closed_error()
            if self._loop is None or self._async_client is None:
                self._loop = LoopThread("llama-retrieval-elasticsearch")
                self._async_client = self.connection.async_client()
            return self._loop, self._async_client

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(f"the store at {self.connection.where} was closed; open it again")


def _limit_s(connection: Connection) -> float | None:
    """Seconds that the deadline of the query leaves; None where a request has less anyway."""
    left = current_context().remaining_s()
    if left is None or left >= connection.timeout_s:
        return None
    return max(left, _NO_TIME_S)


# A connection that the server has closed meanwhile is noticed when it is used.
_RETRIES: Final = 2


# Some five seconds in all: a shard of a new index takes tenths of one, or longer on a busy machine.
# To have the engine wait takes a right to look at the cluster, which not every user has.
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0)


def answer(asked: Request, meaning: Callable[[Json], T]) -> Steps[T]:
    """What the answer to a request means; asked again for a while where shards are not there yet.

    Args:
        asked: A request that only reads.
        meaning: Makes of the JSON what is wanted of it, or raises.

    Raises:
        ShardsAwayError: They did not come, or the time of the query does not allow to wait.
    """
    for pause_s in _PAUSES_S:
        try:
            return meaning((yield asked))
        except ShardsAwayError:
            if not _time_for(pause_s):
                raise
        yield Pause(pause_s)
    return meaning((yield asked))


def _time_for(pause_s: float) -> bool:
    left = current_context().remaining_s()
    return left is None or pause_s < left
