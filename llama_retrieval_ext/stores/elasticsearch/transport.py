"""Carries out steps against a server: on the caller's thread, or beside the caller's event loop."""

import asyncio
import threading
import time
from typing import TypeVar

from elastic_transport import TransportError
from elasticsearch import ApiError, AsyncElasticsearch

from llama_retrieval_ext.errors import StoreClosedError, StoreError
from llama_retrieval_ext.execution.frame import current_frame
from llama_retrieval_ext.stores.elasticsearch.connection import Connection
from llama_retrieval_ext.stores.elasticsearch.failures import meaning
from llama_retrieval_ext.stores.elasticsearch.loop_thread import LoopThread
from llama_retrieval_ext.stores.elasticsearch.request import Json, Pause, Request, Steps

T = TypeVar("T")

_ERRORS = (ApiError, TransportError)
# A query whose time is up before the request is sent: the client takes no timeout of 0.
_NO_TIME_S = 1e-3


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
    frame = current_frame()
    left = None if frame is None else frame.remaining_s()
    if left is None or left >= connection.timeout_s:
        return None
    return max(left, _NO_TIME_S)
