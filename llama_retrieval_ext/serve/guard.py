"""`Guard`, the ASGI middleware in front of every served application.

It authenticates, limits body size, time and number of requests, embeds equal questions once,
handles errors, and logs.
It imports neither FastAPI nor MCP.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from random import getrandbits
from typing import Any, Final, TypeAlias

from llama_retrieval_ext.checks import check_seconds, declared_arguments
from llama_retrieval_ext.errors import ConfigurationError, DeadlineExceededError
from llama_retrieval_ext.execution.context import Context, Session, SingleFlight, entered
from llama_retrieval_ext.parameters import Count, Seconds
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.serve.http_errors import HttpError, http_error_of, raised_at
from llama_retrieval_ext.serve.keys import ApiKeys, KeyHolder

# ASGI types; values are strings, bytes, numbers and lists.
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

DEADLINE_HEADER: Final = "X-Deadline-S"
CONTEXT: Final = "request_context"
_KEYLESS: Final = "local"
# Number of questions whose embeddings are kept, 12 kB each for 384 dimensions.
_QUESTIONS: Final = 500
_BEARER: Final = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
_LOOPBACK: Final = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?", re.IGNORECASE)

log = logging.getLogger("llama_retrieval_ext.serve")


@declared_arguments
@dataclass(frozen=True, slots=True)
class ServeLimits:
    """Limits of a server.

    Args:
        max_body_bytes: Size of a request body.
        max_top_k: Hits per request.
        max_documents: Documents per request that adds documents.
        max_queries: Queries per request with several.
        concurrency: Requests that run at the same time.
        max_waiting: Requests that send their body or wait; further requests are refused with 503.
        timeout_s: Default and maximum deadline of a request, in seconds.

    Raises:
        ConfigurationError: A limit is below 1, or ``timeout_s`` is not above 0.
    """

    max_body_bytes: Count = 8_000_000
    max_top_k: Count = 100
    max_documents: Count = 1000
    max_queries: Count = 100
    concurrency: Count = 32
    max_waiting: Count = 1000
    timeout_s: Seconds = 30.0


@dataclass(slots=True)
class RequestContext:
    """Data of a request that is known before its body is read.

    Attributes:
        caller: Holder of the API key, with its rights.
        deadline: Latest time of the answer, by ``time.monotonic()``.
        request_id: Id in logs and in the response header ``X-Request-Id``.
        notes: Further log fields, such as the number of hits; never content.
    """

    caller: KeyHolder
    deadline: float
    request_id: str = field(default_factory=lambda: f"{getrandbits(64):016x}")
    notes: dict[str, object] = field(default_factory=dict)

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; after it, `DeadlineExceededError`."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceededError("the request waited until its deadline")
        return left


class Guard:
    """ASGI middleware that passes on only requests that are allowed.

    Without keys, it answers processes of this machine only; ``scope`` bounds every request;
    ``open_paths`` need no key and do not queue.
    """

    def __init__(
        self,
        app: App,
        *,
        limits: ServeLimits,
        keys: ApiKeys | None,
        scope: Scope | None,
        open_paths: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._limits = limits
        self._keys = None if keys is None else keys.within(scope)
        self._local = KeyHolder(_KEYLESS, scope, may_write=True)
        self._open_paths = open_paths
        self._turns = asyncio.Semaphore(limits.concurrency)
        self._n_pending = 0  # requests that send their body, wait or run
        self._embeddings = SingleFlight(most=_QUESTIONS)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle HTTP requests, pass on the lifespan, refuse websockets."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, _Response(send))
        else:  # no application uses websockets
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Message, receive: Receive, response: "_Response") -> None:
        start = time.monotonic()
        context = None
        try:
            if self._keys is None:
                _check_local(scope)
            if scope["path"] in self._open_paths:
                await self._app(scope, receive, response)
                return
            context = RequestContext(self._caller(scope), start + self._seconds(scope))
            response.request_id = context.request_id
            scope.setdefault("state", {})[CONTEXT] = context
            await self._pass_on(scope, receive, response, context)
        except Exception as error:  # noqa: BLE001 - logged, and answered without its content
            response.error = error
            await response.fail(http_error_of(error))
        finally:
            if scope["path"] not in self._open_paths:
                _record(scope, response, context, 1e3 * (time.monotonic() - start))

    def _caller(self, scope: Message) -> KeyHolder:
        if self._keys is None:
            return self._local
        match = _BEARER.fullmatch(_header(scope, "Authorization"))
        if match is None:
            raise HttpError(401, "missing_key", "send 'Authorization: Bearer KEY' with an API key")
        caller = self._keys.caller(match[1])
        if caller is None:
            raise HttpError(401, "wrong_key", "this API key is not known here")
        return caller

    def _seconds(self, scope: Message) -> float:
        value = _header(scope, DEADLINE_HEADER)
        if not value:
            return self._limits.timeout_s
        try:
            return min(check_seconds(float(value), DEADLINE_HEADER), self._limits.timeout_s)
        except (ValueError, ConfigurationError) as error:
            message = f"{DEADLINE_HEADER} must be a number of seconds above 0, got {value[:50]!r}"
            raise HttpError(422, "bad_deadline", message) from error

    async def _pass_on(
        self, scope: Message, receive: Receive, response: "_Response", context: RequestContext
    ) -> None:
        """Read the body first: a client that sends it slowly must not take a turn meanwhile."""
        if self._n_pending >= self._limits.concurrency + self._limits.max_waiting:
            raise HttpError(503, "busy", "too many requests are waiting; try again later")
        self._n_pending += 1
        try:
            body = await _body(scope, receive, self._limits.max_body_bytes, context)
            async with (
                _while_connected(receive, response, body) as replay,
                _turn(self._turns, context.left_s),
            ):
                with entered(Context(Session(self._embeddings))):
                    await self._app(scope, replay, response)
        finally:
            self._n_pending -= 1


@asynccontextmanager
async def _turn(turns: asyncio.Semaphore, left_s: float) -> AsyncIterator[None]:
    """Hold a turn; raise `TimeoutError` if there is none in time."""
    async with asyncio.timeout(left_s) as waiting, turns:
        waiting.reschedule(None)
        yield


class _Response:
    """Sender of a response that stores its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.is_complete = False
        self.request_id = ""
        self.error: Exception | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-content-type-options", b"nosniff")]
            if self.request_id:
                headers.append((b"x-request-id", self.request_id.encode()))
            message = {**message, "headers": headers}
        else:
            self.is_complete = not message.get("more_body", False)
        await self._send(message)

    async def fail(self, failure: HttpError) -> None:
        if self.status:  # the response has begun; the client notices that it ends early
            return
        body = json.dumps(failure.to_dict()).encode()
        headers = [(b"content-type", b"application/json"), *failure.headers()]
        headers.append((b"content-length", str(len(body)).encode()))
        await self({"type": "http.response.start", "status": failure.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


async def _body(scope: Message, receive: Receive, most: int, context: RequestContext) -> bytes:
    """Return the body of a request."""
    length = _header(scope, "Content-Length")
    if length.isdecimal() and int(length) > most:
        raise _too_large(most)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        async with asyncio.timeout(context.left_s):
            message = await receive()
        if message["type"] != "http.request":
            raise HttpError(400, "incomplete", "the connection ended before the body did")
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > most:
            raise _too_large(most)
    return b"".join(parts)


@asynccontextmanager
async def _while_connected(
    receive: Receive, response: _Response, body: bytes
) -> AsyncIterator[Receive]:
    """Cancel the block when the client disconnects.

    Yields:
        The function that returns the body, and then the message that the client disconnected.
    """
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    connection = asyncio.timeout(None)

    async def disconnected() -> Message:
        message = await receive()
        if not response.is_complete:
            connection.reschedule(0)
        return message

    async def replay() -> Message:
        return messages.pop() if messages else await asyncio.shield(end)

    try:
        async with connection:
            end = asyncio.create_task(disconnected())
            try:
                yield replay
            finally:
                end.cancel()
    except TimeoutError as error:
        if not connection.expired():
            raise
        raise HttpError(499, "disconnected", "the client disconnected") from error


def _too_large(most: int) -> HttpError:
    return HttpError(413, "too_large", f"the body has more than {most:,} bytes, the limit")


def _check_local(scope: Message) -> None:
    """Raise unless a request without a key comes from this machine and addresses it.

    The check of ``Host`` and ``Origin`` stops web pages: DNS rebinding and cross-origin requests.
    """
    is_local = is_loopback((scope.get("client") or ("",))[0])
    origin = _header(scope, "Origin").removeprefix("http://")
    names = (_header(scope, "Host"), *([origin] if origin else []))
    if not is_local or not all(map(_LOOPBACK.fullmatch, names)):
        raise HttpError(
            403, "not_local", "without API keys, only requests from this machine are accepted"
        )


def is_loopback(host: str) -> bool:
    """Return whether an address is one of this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _header(scope: Message, name: str) -> str:
    wanted = name.lower().encode()
    values = [value for key, value in scope["headers"] if key.lower() == wanted]
    return values[0].decode("latin-1") if values else ""


def _record(
    scope: Message, response: _Response, context: RequestContext | None, took_ms: float
) -> None:
    """Log a request with the pattern of its path, without content."""
    route = scope.get("route")
    facts: dict[str, object] = {
        "method": scope["method"],
        "route": getattr(route, "path", "-"),
        "status": response.status,
        "ms": round(took_ms, 1),
    }
    if context is not None:
        facts |= {"key": context.caller.name, "request_id": context.request_id, **context.notes}
    if response.error is not None:
        facts["error"] = type(response.error).__name__
        facts["at"] = raised_at(response.error)
    level = logging.ERROR if response.status >= 500 else logging.INFO  # noqa: PLR2004 - HTTP
    log.log(level, "request", extra={"facts": facts})
