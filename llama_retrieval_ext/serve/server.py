"""Runs an application with uvicorn: address check, shutdown and logs."""

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from socket import AF_INET, AF_INET6, create_server
from threading import RLock
from types import FrameType
from typing import Any, ClassVar, Final

import uvicorn
from tqdm import tqdm  # type: ignore[import-untyped]
from uvicorn.protocols.http.h11_impl import H11Protocol

from llama_retrieval_ext.errors import ConfigurationError, RetrievalExtError
from llama_retrieval_ext.serve.guard import App, Message, Receive, Send, is_loopback, log
from llama_retrieval_ext.serve.keys import ApiKeys

# Seconds for requests to end during shutdown; writes have no limit.
_GRACE_S: Final = 10
# Longer than clients and proxies keep idle connections: if the server closed one while a request is
# sent, the client would see an error.
_KEEP_ALIVE_S: Final = 75
# Python's 5 ms would be the time that the event loop and threads, which write, wait for each other.
_SWITCH_S: Final = 0.0005
_STARTUP_FAILURE: Final = 3  # uvicorn's exit code, whose module differs by version


def check_host(host: str, keys: ApiKeys | None) -> None:
    """Check that a server may listen on an address: without keys, only a loopback address.

    Examples:
        >>> check_host("127.0.0.1", None)
        >>> check_host("0.0.0.0", None)
        Traceback (most recent call last):
            ...
        llama_retrieval_ext.errors.ConfigurationError: without API keys a server listens to ...

    """
    if keys is None and host != "localhost" and not is_loopback(host):
        raise ConfigurationError(
            f"without API keys a server listens to this machine only, at 127.0.0.1, not {host!r}; "
            "add keys: --keys FILE or --keys env:NAME"
        )


def run_server(app: App, *, host: str, port: int) -> None:
    """Serve an application until the process gets a signal to stop; see `serve_http`."""
    config = uvicorn_config(app, host=host, port=port)
    with _logged(host, port), _switching_quickly(), _exit_on_sigterm():
        uvicorn.Server(config).run()


def run_workers(factory: str, *, host: str, port: int, workers: int) -> None:
    """Serve an application by several processes until this one gets a signal to stop.

    Each process calls the factory, as ``module:function``. uvicorn replaces a process that dies.
    """
    with _logged(host, port):
        uvicorn.run(factory, factory=True, workers=workers, host=host, port=port, **_UVICORN)


def worker_app(create: Callable[[ExitStack], App]) -> App:
    """Return the application of a worker, whose stack is closed when it stops; it writes logs."""
    sys.setswitchinterval(_SWITCH_S)
    # Without a semaphore of the system: a signal ends the process, which would not remove it.
    tqdm.set_lock(RLock())
    with ExitStack() as building:
        building.enter_context(json_logs())
        try:
            app = create(building)
        except RetrievalExtError as error:
            log.error("failed", extra={"facts": {"error": str(error)}})
            sys.exit(_STARTUP_FAILURE)
        stack = building.pop_all()

    async def served(scope: Message, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            if scope["type"] == "lifespan":
                stack.close()

    return served


@contextmanager
def _logged(host: str, port: int) -> Iterator[None]:
    """Check the port; log the start and the end of a server."""
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    _check_port(host, port)
    if sys.stderr.isatty():
        sys.stderr.write(f"{url} (Ctrl-C stops)\n")
    with json_logs():
        log.info("starting", extra={"facts": {"url": url}})
        try:
            yield
        finally:
            log.info("stopped", extra={"facts": {}})


@contextmanager
def _switching_quickly() -> Iterator[None]:
    """Switch threads at `_SWITCH_S` in the block."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class TimedHeaders(H11Protocol):
    """uvicorn's protocol, which also closes connections that do not send a request in time.

    uvicorn itself has a limit for idle connections after an answer only.
    """

    headers_s: ClassVar[float] = 20.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._time_headers()

    def data_received(self, data: bytes) -> None:
        """Handle data, which may begin or end the headers of a request."""
        super().data_received(data)
        self._time_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _time_headers(self) -> None:
        # In uvicorn, a cycle is a request from the end of its headers to the end of its answer.
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.headers_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_UVICORN: Final[dict[str, Any]] = {  # Any: arguments of several types
    "http": TimedHeaders,
    "access_log": False,  # it has paths, which contain ids of documents
    "log_config": None,
    "timeout_graceful_shutdown": _GRACE_S,
    "timeout_keep_alive": _KEEP_ALIVE_S,
    # A worker answers once it has imported; after 5 s, a busy machine would replace it for ever.
    "timeout_worker_healthcheck": 120,
    "server_header": False,
}


def uvicorn_config(
    app: App, *, host: str, port: int, http: type[H11Protocol] = TimedHeaders
) -> uvicorn.Config:
    """Return how uvicorn serves an application."""
    return uvicorn.Config(app, host=host, port=port, **{**_UVICORN, "http": http})


def _check_port(host: str, port: int) -> None:
    """Raise if another program listens at the address."""
    try:
        with create_server((host, port), family=AF_INET6 if ":" in host else AF_INET):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen at {host}:{port}: {error.strerror}; stop the other program, or choose "
            "another port: --port"
        ) from error


class _JsonFormatter(logging.Formatter):
    """Log formatter: one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line of JSON."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname, "event": record.getMessage()}
        return json.dumps({**line, **getattr(record, "facts", {})}, ensure_ascii=False)


@contextmanager
def json_logs() -> Iterator[None]:
    """Write the logs of the server to standard error, one JSON object per line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter())
    level, propagate = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Raise SystemExit after uvicorn stops, as the signal alone would end the process at once."""

    def end(_: int, __: FrameType | None) -> None:
        sys.exit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
