"""Servers: the addresses that they listen at, and as processes how they serve many and stop."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import uvicorn

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding, Scope
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.serve import ServeLimits, create_app, serve_http
from llama_retrieval_ext.serve.guard import App, Message, Receive, Send
from llama_retrieval_ext.serve.server import TimedHeaders, uvicorn_config
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases
from tests.knowledge_base.engines import place
from tests.patience import unless_stalled
from tests.quick import trials
from tests.serve.conftest import ACME, CHROMIUM, dom_of
from tests.serve.load import load
from tests.serve.running import command, fill, free_port, keys_of, secret_of, serving
from tests.servers.elasticsearch import elasticsearch_url

__all__ = ["elasticsearch_url"]

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning:anyio")

TENANTS = [f"tenant{n}" for n in range(5)]
N = trials(40)  # requests


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"embedded:{tmp_path_factory.mktemp('served') / 'kb'}"
    fill(url, TENANTS, per_tenant=20)
    return url


@pytest.fixture
def written_url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    with place(engine, tmp_path, request) as url:
        fill(url, TENANTS, per_tenant=20)
        yield url


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "workers"), [("embedded", "1"), ("elasticsearch", "2")])
def test_many_clients_get_their_own_answers_and_a_stop_finishes_writes(
    written_url: str, workers: str, tmp_path: Path
) -> None:
    url, env = written_url, {"SERVE_KEYS": keys_of(TENANTS)}
    options = ("--keys", "env:SERVE_KEYS", "--workers", workers)
    with serving(url, tmp_path, *options, env=env) as server:
        work = load(server.url, TENANTS, clients=20, requests=N, per_tenant=20)
        outcome = asyncio.run(work)
        assert (outcome.crossed, outcome.unexpected) == ([], [])
        assert sum(outcome.statuses.values()) == N
        answers: list[Any] = []
        documents = [{"id": f"late-{n}", "text": f"Late {n} of tenant1."} for n in range(30)]

        def write() -> None:
            headers = {"Authorization": f"Bearer {secret_of('tenant1')}"}
            body = {"documents": documents}
            with suppress(httpx.TransportError):  # the server stopped before it was accepted
                answers.append(httpx.post(f"{server.url}/v1/documents", json=body, headers=headers))

        writing = Thread(target=write)
        writing.start()
        writing.join(0.5)
        assert server.stop() == 0
        writing.join(30)
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert {line["event"] for line in lines} == {"starting", "request", "stopped"}
    assert "late" not in server.log.read_text()
    with KnowledgeBase.open(url, embed_model=LocalEmbedding(), must_exist=True) as kb:
        stored = [d for d in kb.documents(scope=Scope("tenant1")) if "late" in d.document_id]
    # The request came before the stop, or was refused by it: all or nothing.
    accepted = bool(answers) and answers[0].status_code == 200
    assert len(stored) == (30 if accepted else 0)


@pytest.mark.slow
def test_two_workers_over_copies_answer_each_tenant_and_stop_with_their_parent(
    url: str, tmp_path: Path
) -> None:
    env = {"SERVE_KEYS": keys_of(TENANTS), "TMPDIR": str(tmp_path)}
    options = ("--keys", "env:SERVE_KEYS", "--read-only", "--workers", "2")
    with serving(url, tmp_path, *options, env=env) as server:
        work = load(
            server.url, TENANTS, clients=8, requests=N, per_tenant=20, without=frozenset({"add"})
        )
        outcome = asyncio.run(work)
        assert (outcome.crossed, outcome.unexpected) == ([], [])
        assert server.stop() == 0
    assert [each.name for each in tmp_path.iterdir()] == ["server.log"]  # the copies are gone
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert (lines[0]["event"], lines[-1]["event"]) == ("starting", "stopped")


@pytest.mark.slow
async def test_mcp_over_stdio_serves_the_scope_it_was_started_with(
    url: str, tmp_path: Path
) -> None:
    from mcp import Client, StdioServerParameters, stdio_client  # noqa: PLC0415 - slow to import

    program, *args = command("mcp", "--kb", url, "--tenant", "tenant1", "--about", "Reports.")
    server = StdioServerParameters(command=program, args=args)
    # Its default is the stderr of the test that imported mcp first.
    with (tmp_path / "errors").open("w") as errors:
        async with Client(stdio_client(server, errlog=errors)) as client:
            tools = (await client.list_tools()).tools
            names = [tool.name for tool in tools]
            assert names == ["search", "search_many", "facets", "read_document"]
            found = await client.call_tool("search", {"query": "annual leave", "top_k": 50})
            assert found.structured_content is not None
            passages = found.structured_content["passages"]
    assert {passage["document_id"].partition("-")[0] for passage in passages} == {"tenant1"}
    assert len(passages) == 20


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium")
def test_the_page_searches_and_shows_why_in_a_browser(kb: KnowledgeBase, tmp_path: Path) -> None:
    with in_thread(create_app(kb, scope=ACME)) as port:
        shown = dom_of(f"http://127.0.0.1:{port}/#{quote('annual leave <img>')}", tmp_path)
    assert "Why each hit ranks where it does" in shown
    assert "acme" in shown
    assert '<p id="status" role="status" class=""></p>' in shown


@pytest.mark.slow
@cases("host", ["0.0.0.0", "::", "example.com", ""])
def test_without_keys_a_server_listens_at_no_other_address(host: str) -> None:
    with (
        KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb,
        pytest.raises(ConfigurationError, match=r"without API keys .* add keys: --keys FILE"),
    ):
        serve_http(kb, host=host)


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


class Quick(TimedHeaders):
    headers_s = 0.3


async def slow_app(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@contextmanager
def in_thread(app: App, **options: Any) -> Iterator[int]:
    """Serve an application in a thread of this process; the port."""
    port = free_port()
    server = uvicorn.Server(uvicorn_config(app, host="127.0.0.1", port=port, **options))
    running = Thread(target=server.run)
    running.start()
    while not server.started:
        running.join(0.02)
    yield port
    server.should_exit = True
    running.join(10)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with in_thread(slow_app, http=Quick) as port:
        yield port


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", REQUEST], ids=["nothing", "a header"])
def test_a_connection_that_never_ends_its_headers_is_closed(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(sent)
        assert client.recv(100) == b""


@pytest.mark.slow
@unless_stalled
def test_a_slow_answer_and_a_kept_connection_are_not_cut(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        for _ in range(2):
            client.sendall(REQUEST + b"\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 204")
        client.sendall(REQUEST)
        assert client.recv(100) == b""


class Waiting:
    """A language model that waits until it is cancelled, and counts."""

    def __init__(self) -> None:
        self.asked, self.cancelled = Event(), Event()
        self.n_asked = 0

    async def __call__(self, prompt: str, **_: Any) -> str:
        self.n_asked += 1
        self.asked.set()
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return prompt


@pytest.mark.slow
@pytest.mark.parametrize("route", ["ask", "ask/stream"])
def test_a_client_that_leaves_gives_up_its_place_in_the_queue_and_its_call_of_the_llm(
    kb: KnowledgeBase, route: str
) -> None:
    def ask(question: str) -> socket.socket:
        body = json.dumps({"query": question})
        head = f"POST /v1/services/{route} HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n\r\n"
        client = socket.create_connection(("127.0.0.1", own), timeout=5)
        client.sendall((head + body).encode())
        return client

    llm = Waiting()
    limits = ServeLimits(concurrency=1, max_waiting=1)
    with in_thread(create_app(kb, scope=ACME, limits=limits, llm=llm)) as own:
        with ask("How much annual leave?"):
            assert llm.asked.wait(5)
            ask("Which annual leave?").close()
            for _ in range(100):  # refused while the other keeps its place
                with ask("Whose annual leave?") as queued, suppress(TimeoutError):
                    queued.settimeout(0.3)
                    queued.recv(1000)
                    continue
                break
            else:
                pytest.fail("the place in the queue is not free")
        assert llm.cancelled.wait(5)
        assert httpx.get(f"http://127.0.0.1:{own}/v1/documents").status_code == 200
        assert llm.n_asked == 1


def test_the_limit_of_headers_is_in_force_unless_a_test_replaces_it() -> None:
    assert uvicorn_config(slow_app, host="127.0.0.1", port=1).http is TimedHeaders
