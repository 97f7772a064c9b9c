"""What routes share: `Service`, with pending writes; scopes and queries of requests; answers."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from fastapi import Depends, Request, Response
from fastapi import Query as Param
from fastapi.responses import StreamingResponse
from pydantic_core import PydanticSerializationError, to_json

from llama_retrieval_ext.execution.drivers import in_thread
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.serve.guard import CONTEXT, RequestContext, ServeLimits
from llama_retrieval_ext.serve.http_errors import HttpError, http_error_of
from llama_retrieval_ext.serve.requests import (
    AskRequest,
    LimitedRequest,
    RequestedScope,
    SearchRequest,
)

T = TypeVar("T")
# Event names and their JSON.
Events: TypeAlias = AsyncGenerator[tuple[str, object], None]

# Seconds to cache the readiness of the store, because `/ready` needs no key.
_READY_S: Final = 1.0
_READY_TIMEOUT_S: Final = 5.0
# Writes have their own threads, so that reads do not wait for them.
_WRITERS: Final = 4
_EVENT_STREAM: Final = "text/event-stream"
HIT_EXAMPLE: Final = {
    "node_id": "5e1c",
    "text": "Annual leave is 25 days.",
    "score": 0.0328,
    "metadata": {"file_path": "handbook.md", "year": 2025},
    "kb_id": None,
    "document_id": "leave",
    "source": "hybrid",
    "contributions": [],
}


@dataclass(slots=True)
class Service:
    """Shared state of the routes of a server; the owner of the knowledge base closes it."""

    kb: KnowledgeBase
    limits: ServeLimits
    _writers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_WRITERS, "serve-write")
    )
    # Running writes. Any: their results.
    _writes: set[asyncio.Future[Any]] = field(default_factory=set)
    _is_stopping: bool = False
    _ready: tuple[float, asyncio.Future[bool] | None] = (0.0, None)

    def top_k(self, body: LimitedRequest) -> int:
        """Return the ``top_k`` of a request; raise if it asks for more than the server's limit."""
        most = self.limits.max_top_k
        if body.top_k > most and "top_k" in body.model_fields_set:
            message = f"top_k is {body.top_k}; this server gives at most {most}"
            raise HttpError(422, "too_many", message)
        return min(body.top_k, most)

    async def read(self, context: RequestContext, function: Callable[[], T]) -> T:
        """Return the result of a read in a thread, within the deadline."""
        return await asyncio.wait_for(in_thread(function), context.left_s)

    async def write(self, context: RequestContext, function: Callable[[], T]) -> T:
        """Return the result of a write in a thread; the write continues after a timeout."""
        if not context.caller.may_write:
            raise HttpError(403, "read_only", "this API key may only read")
        if self._is_stopping:
            raise HttpError(503, "unavailable", "the server is stopping")
        if len(self._writes) >= self.limits.concurrency:
            raise HttpError(503, "busy", "too many writes are running; try again later")
        task = asyncio.get_running_loop().run_in_executor(self._writers, function)
        self._writes.add(task)
        task.add_done_callback(self._written)
        try:
            return await asyncio.wait_for(asyncio.shield(task), context.left_s)
        except TimeoutError as error:
            if task.done():  # the write itself raised it
                raise
            message = "the deadline ran out; the write goes on"
            raise HttpError(504, "deadline_exceeded", message) from error

    def _written(self, task: asyncio.Future[Any]) -> None:
        self._writes.discard(task)
        if not task.cancelled():
            task.exception()  # asyncio would log an unretrieved error with its content

    async def stop(self) -> None:
        """Refuse new writes, and wait for running ones."""
        self._is_stopping = True
        if self._writes:
            await asyncio.wait(self._writes)
        self._writers.shutdown()

    async def is_ready(self) -> bool:
        """Return whether the store answers, and the server is not stopping."""
        if self._is_stopping:
            return False
        since, ready = self._ready
        if ready is None or (ready.done() and time.monotonic() - since > _READY_S):
            ready = asyncio.ensure_future(self._answers())
            self._ready = time.monotonic(), ready
        return await asyncio.shield(ready)

    async def _answers(self) -> bool:
        try:
            await asyncio.wait_for(in_thread(self.kb.info), _READY_TIMEOUT_S)
        except Exception:  # noqa: BLE001 - whatever it is, it is not ready
            return False
        return True


def as_json(value: object, *, status: int = 200) -> Response:
    """Return a value as a JSON response."""
    return Response(_json(value), status_code=status, media_type="application/json")


def _json(value: object) -> bytes:
    """Return a value as JSON; NaN becomes null."""
    try:
        return to_json(value, inf_nan_mode="null", fallback=str)
    except PydanticSerializationError:  # lone surrogates, which the standard library escapes
        text = json.dumps(value, default=str)
        return json.dumps(json.loads(text, parse_constant=lambda _: None)).encode()


def json_example(example: object) -> dict[str, object]:
    """Return the OpenAPI documentation of a JSON response with an example."""
    return {"content": {"application/json": {"example": example}}}


# Async, because FastAPI runs other dependencies in threads.
async def _context(request: Request) -> RequestContext:
    context = getattr(request.state, CONTEXT, None)
    if not isinstance(context, RequestContext):  # without the guard, refuse every request
        raise HttpError(401, "missing_key", "this request was not authenticated")
    return context


Context = Annotated[RequestContext, Depends(_context)]


async def _scope_of_query(
    context: Context,
    tenant_id: Annotated[str | None, Param(description="Narrows the scope of the key.")] = None,
    kb_id: Annotated[list[str] | None, Param(description="Likewise; may be repeated.")] = None,
    principal: Annotated[
        list[str] | None, Param(description="For keys that may name them; may be repeated.")
    ] = None,
) -> Scope | None:
    requested = RequestedScope(tenant_id=tenant_id, kb_ids=kb_id, principals=principal)
    return context.caller.bounded(requested.to_scope())


QueryScope = Annotated[Scope | None, Depends(_scope_of_query)]


async def _owner_scope(
    context: Context,
    tenant_id: Annotated[str | None, Param(description="Narrows the scope of the key.")] = None,
    kb_id: Annotated[list[str] | None, Param(description="Likewise; may be repeated.")] = None,
) -> Scope | None:
    return body_scope(context, RequestedScope(tenant_id=tenant_id, kb_ids=kb_id), to_add=True)


# For what belongs to tenants and knowledge bases, not to those who ask.
OwnerScope = Annotated[Scope | None, Depends(_owner_scope)]


def body_scope(
    context: RequestContext, requested: RequestedScope | None, *, to_add: bool = False
) -> Scope | None:
    """Return the scope of a request, narrowed by the scope in its body."""
    scope = None if requested is None else requested.to_scope()
    return context.caller.bounded(scope, to_add=to_add)


def query_of(
    body: SearchRequest | AskRequest, context: RequestContext, *, top_k: int | None = None
) -> Query:
    """Return the query of a request, in its scope and within its deadline."""
    return Query(
        body.query,
        filters=None if body.filters is None else body.filters.to_filters(),
        scope=body_scope(context, body.scope),
        top_k=top_k,
        timeout_s=context.left_s,
        correct=body.correct,
        interpret=body.interpret,
        fields=body.fields,
        as_of=body.as_of,
        known_at=body.known_at,
    )


def event_stream(events: Events, context: RequestContext) -> Response:
    """Return a response of server-sent events; an error becomes the last event.

    The events are closed when the client disconnects.
    """
    return StreamingResponse(_encoded(events, context), media_type=_EVENT_STREAM)


def events_example(description: str, example: str) -> dict[str, object]:
    """Return the OpenAPI documentation of a response of events."""
    return {"description": description, "content": {_EVENT_STREAM: {"example": example}}}


async def _encoded(events: Events, context: RequestContext) -> AsyncIterator[bytes]:
    try:
        async with aclosing(events):
            async for name, value in events:
                yield _event(name, value)
    except Exception as error:  # noqa: BLE001 - the status is sent: the error is an event
        failure = http_error_of(error)
        context.notes |= {"stream_status": failure.status, "error": type(error).__name__}
        yield _event("error", failure.to_dict())


def _event(name: str, value: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + _json(value) + b"\n\n"
