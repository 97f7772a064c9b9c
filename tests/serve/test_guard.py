"""Who gets an answer: 401 without a known key, 403 beyond its scope, 503 when too many ask."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from threading import Event
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.serve import ApiKeys, ServeLimits, create_app
from llama_retrieval_ext.serve.guard import Guard, Message, Receive, Send
from tests.serve.conftest import KEYS, LOCAL, ROUTES, SECRETS, Connect, bearer, texts

UNKNOWN = [
    {},
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer not-a-key-0123456789"},
    {"Authorization": f"Bearer {SECRETS['acme']}x"},
    {"Authorization": f"Bearer {SECRETS['acme']} {SECRETS['acme']}"},
    {"Authorization": f"Basic {SECRETS['acme']}"},
    {"X-API-Key": SECRETS["acme"]},
]


def naming_globex(method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
    """The request with another tenant in it."""
    if body is None:
        return {"method": method, "url": f"{path}?tenant_id=globex"}
    return {"method": method, "url": path, "json": {**body, "scope": {"tenant_id": "globex"}}}


def test_each_route_refuses_a_key_that_is_missing_or_wrong(connect: Connect) -> None:
    client = connect()
    for method, path, body in [*ROUTES, ("GET", "/nowhere", None), ("GET", "/docs", None)]:
        for headers in UNKNOWN:
            client.headers.pop("Authorization", None)
            answer = client.request(method, path, json=body, headers=headers)
            assert answer.status_code == 401, (method, path, headers)
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.json()["error"]["type"] in {"missing_key", "wrong_key"}


@pytest.mark.parametrize("route", ROUTES)
def test_each_route_refuses_a_key_of_another_tenant(
    connect: Connect, kb: KnowledgeBase, route: tuple[str, str, dict[str, Any] | None]
) -> None:
    answer = connect("acme").request(**naming_globex(*route))
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "out_of_scope")
    assert "globex" not in answer.text
    assert len(kb.documents(scope=Scope("globex"))) == 2


def test_filters_and_metadata_do_not_lead_out_of_the_scope(connect: Connect) -> None:
    client = connect()
    lure = {"key": "tenant_id", "value": "globex"}
    for filters in (
        {"filters": [lure]},
        {"filters": [lure, {"key": "tenant_id", "value": "acme"}], "condition": "or"},
        {"filters": [{"filters": [{**lure, "value": "acme"}], "condition": "not"}]},
    ):
        answer = client.post("/v1/search", json={"query": "leave", "filters": filters})
        assert not any("globex" in text for text in texts(answer))
    for key in ("tenant_id", "kb_id"):
        document = {"id": "lure", "text": "Lure.", "metadata": {key: "globex"}}
        assert client.post("/v1/documents", json={"documents": [document]}).status_code == 422


def test_without_keys_only_this_machine_is_answered(kb: KnowledgeBase) -> None:
    app = create_app(kb, scope=Scope("acme"))
    local, remote = ("127.0.0.1", 5), ("192.0.2.7", 5)
    for client, url, headers, status in (
        (local, LOCAL, {}, 200),
        (local, "http://localhost", {}, 200),
        (local, "http://[::1]:8000", {"Origin": "http://[::1]:8000"}, 200),
        (("::1", 5), LOCAL, {}, 200),
        (remote, LOCAL, {}, 403),
        (("", 0), LOCAL, {}, 403),
        (local, "http://rebound.example:8000", {}, 403),
        (local, "http://localhost.example", {}, 403),
        (local, LOCAL, {"Origin": "https://page.example"}, 403),
        (local, LOCAL, {"Origin": "null"}, 403),
    ):
        with TestClient(app, base_url=url, client=client) as opened:
            for path in ("/v1/documents", "/"):
                answer = opened.get(path, headers=headers)
                assert answer.status_code == status, (client, url, headers)


async def test_too_many_requests_wait_and_then_are_refused(kb: KnowledgeBase, gate: Event) -> None:
    limits = ServeLimits(concurrency=1, max_waiting=1)
    app = create_app(kb, keys=ApiKeys.parse(KEYS), limits=limits)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://server", headers=bearer("acme")
    ) as client:
        slow = {"query": "slow leave", "mode": "vector"}
        first, second = (asyncio.ensure_future(client.post("/v1/search", json=slow)) for _ in "12")
        await asyncio.sleep(0.1)
        refused = await client.post("/v1/search", json=slow)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        # Health waits for nobody.
        assert (await client.get("/health")).json() == {"status": "ok"}
        gate.set()
        assert [len(texts(await each)) for each in (first, second)] == [2, 2]
        late = {"X-Deadline-S": "0.05"}
        gate.clear()
        holding = asyncio.ensure_future(client.post("/v1/search", json=slow))
        await asyncio.sleep(0.05)
        waited = await client.post("/v1/search", json={"query": "leave"}, headers=late)
        assert waited.status_code == 504
        gate.set()
        assert (await holding).status_code == 200


def test_logs_have_facts_and_no_content(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client = connect()
    client.post("/v1/search", json={"query": "annual zeppelin"})
    client.post("/v1/search", json={"query": "broken zeppelin", "mode": "vector"})
    document = {"id": "zeppelin", "text": "zeppelin", "metadata": {"zeppelin": "zeppelin"}}
    client.post("/v1/documents", json={"documents": [document]})
    client.get("/v1/documents/zeppelin")
    client.get("/zeppelin?zeppelin=1", headers={"Authorization": "Bearer zeppelin"})
    records = [r for r in caplog.records if r.name == "llama_retrieval_ext.serve"]
    facts = [vars(record)["facts"] for record in records]
    shown = [(each["route"], each["status"], each.get("key")) for each in facts]
    assert shown == [
        ("/v1/search", 200, "acme"),
        ("/v1/search", 500, "acme"),
        ("/v1/documents", 200, "acme"),
        ("/v1/documents/{document_id:path}", 200, "acme"),
        ("-", 401, None),
    ]
    assert facts[0]["hits"] == 2
    assert (facts[1]["error"], facts[1]["at"].partition(":")[0]) == ("RuntimeError", "conftest.py")
    assert all(isinstance(each["ms"], float) for each in facts)
    whole = " ".join(
        str({**vars(record), "facts": str(vars(record)["facts"])}) for record in records
    )
    assert "zeppelin" not in whole


Post = Callable[..., Awaitable[httpx.Response]]


class Echo:
    """An application that answers with the size of the body, once its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.n_running = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        if scope["path"] == "/slow":
            self.n_running += 1
            await self.gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(len(body)).encode()})


def client_of(app: Echo, limits: ServeLimits, name: str) -> httpx.AsyncClient:
    guards: dict[int, Guard] = app.__dict__.setdefault("guards", {})
    if not guards:
        guards[0] = Guard(app, limits=limits, keys=ApiKeys.parse(KEYS), scope=None)
    transport = httpx.ASGITransport(app=guards[0])
    return httpx.AsyncClient(transport=transport, base_url="http://server", headers=bearer(name))


class Unfinished(httpx.AsyncByteStream):
    """A body that sends some bytes, and then nothing more until it is closed."""

    def __init__(self, first: bytes = b"x") -> None:
        self.first = first
        self.sent = asyncio.Event()

    async def __aiter__(self) -> Any:
        yield self.first
        self.sent.set()
        await asyncio.Event().wait()


async def start_unfinished(client: httpx.AsyncClient, first: bytes = b"x") -> asyncio.Task[Any]:
    """Start a request whose body never ends."""
    body = Unfinished(first)
    task = asyncio.ensure_future(client.post("/", content=body))
    await body.sent.wait()
    return task


async def test_unfinished_bodies_of_one_key_stop_no_other_key() -> None:
    app, limits = Echo(), ServeLimits(concurrency=2)
    acme, globex = (client_of(app, limits, name) for name in ("acme", "globex"))
    slow = [await start_unfinished(acme) for _ in range(8)]
    async with asyncio.timeout(5):
        assert (await globex.post("/", content=b"four")).text == "4"
        assert (await acme.post("/", content=b"four")).text == "4"
    for each in slow:
        each.cancel()


async def test_one_key_gets_only_its_share_of_the_turns() -> None:
    app, limits = Echo(), ServeLimits(concurrency=4)
    app.gate.clear()
    acme, globex = (client_of(app, limits, name) for name in ("acme", "globex"))
    running = [asyncio.ensure_future(acme.post("/slow")) for _ in range(10)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(5):
        assert (await globex.post("/")).status_code == 200
    app.gate.set()
    assert {(await each).status_code for each in running} == {200}


async def test_one_key_gets_only_its_share_of_the_queue() -> None:
    app, limits = Echo(), ServeLimits(concurrency=2, max_waiting=4)
    acme, globex = (client_of(app, limits, name) for name in ("acme", "globex"))
    slow = [await start_unfinished(acme) for _ in range(3)]
    refused = await acme.post("/")
    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "busy")
    assert (await globex.post("/")).status_code == 200
    for each in slow:
        each.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    assert (await acme.post("/")).status_code == 200


async def test_bodies_of_one_key_hold_only_its_share_of_the_memory() -> None:
    app, limits = Echo(), ServeLimits(concurrency=2, max_body_bytes=1000)
    acme, globex = (client_of(app, limits, name) for name in ("acme", "globex"))
    slow = await start_unfinished(acme, b"x" * 900)
    refused = await acme.post("/", content=b"x" * 900)
    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "busy")
    assert (await globex.post("/", content=b"x" * 900)).text == "900"
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    assert (await acme.post("/", content=b"x" * 900)).text == "900"


@pytest.mark.parametrize(("keys", "share"), [(None, 8), (KEYS, 4)])
async def test_a_single_caller_may_use_all_turns(keys: str | None, share: int) -> None:
    app = Echo()
    app.gate.clear()
    loaded = None if keys is None else ApiKeys.parse(keys)
    guard = Guard(app, limits=ServeLimits(concurrency=8), keys=loaded, scope=None)
    transport = httpx.ASGITransport(app=guard)
    headers = {} if keys is None else bearer("acme")
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1", headers=headers
    ) as client:
        running = [asyncio.ensure_future(client.post("/slow")) for _ in range(8)]
        await asyncio.sleep(0.05)
        assert app.n_running == share
        app.gate.set()
        assert {(await each).status_code for each in running} == {200}
