"""How uvicorn is configured: connections that send no request are closed."""

import asyncio
import socket
from collections.abc import Iterator
from threading import Thread

import pytest
import uvicorn

from llama_retrieval_ext.serve.guard import Message, Receive, Send
from llama_retrieval_ext.serve.server import TimedHeaders, uvicorn_config
from tests.serve.running import free_port

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


class Quick(TimedHeaders):
    headers_s = 0.3


async def slow_app(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    port = free_port()
    server = uvicorn.Server(uvicorn_config(slow_app, host="127.0.0.1", port=port, http=Quick))
    running = Thread(target=server.run)
    running.start()
    while not server.started:
        running.join(0.02)
    yield port
    server.should_exit = True
    running.join(10)


@pytest.mark.parametrize("sent", [b"", REQUEST, b"GE"], ids=["nothing", "a header", "a word"])
def test_a_connection_that_never_ends_its_headers_is_closed(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(sent)
        assert client.recv(100) == b""


def test_a_slow_answer_and_a_kept_connection_are_not_cut(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        for _ in range(2):
            client.sendall(REQUEST + b"\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 204")
        client.sendall(REQUEST)
        assert client.recv(100) == b""


def test_the_limit_of_headers_is_in_force_unless_a_test_replaces_it() -> None:
    assert uvicorn_config(slow_app, host="127.0.0.1", port=1).http is TimedHeaders
