"""Who gets an answer: 401 without a known key, 403 beyond its scope, 503 when too many wait."""

import asyncio
import logging
from threading import Event
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.serve import ApiKeys, ServeLimits, create_app
from llama_retrieval_ext.serve.guard import Guard, Message, Receive, Send
from tests.serve.conftest import KEYS, LOCAL, ROUTES, SECRETS, Connect, bearer, texts

pytestmark = pytest.mark.slow

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


def test_each_route_refuses_a_key_of_another_tenant(
    connect: Connect, kb: KnowledgeBase, subtests: pytest.Subtests
) -> None:
    client = connect("acme")
    for route in ROUTES:
        with subtests.test(route=route):
            answer = client.request(**naming_globex(*route))
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
        other = {**slow, "query": "slow policy"}  # equal questions are embedded once
        holding = asyncio.ensure_future(client.post("/v1/search", json=other))
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
    client.post("/v1/services/ask", json={"query": "zeppelin"})
    client.get("/zeppelin?zeppelin=1", headers={"Authorization": "Bearer zeppelin"})
    records = [r for r in caplog.records if r.name == "llama_retrieval_ext.serve"]
    facts = [vars(record)["facts"] for record in records]
    shown = [(fact["route"], fact["status"], fact.get("key")) for fact in facts]
    assert shown == [
        ("/v1/search", 200, "acme"),
        ("/v1/search", 500, "acme"),
        ("/v1/documents", 200, "acme"),
        ("/v1/documents/{document_id:path}", 200, "acme"),
        ("/v1/services/ask", 501, "acme"),
        ("-", 401, None),
    ]
    assert facts[0]["hits"] == 2
    assert (facts[1]["error"], facts[1]["at"].partition(":")[0]) == ("RuntimeError", "conftest.py")
    assert all(isinstance(fact["ms"], float) for fact in facts)
    whole = " ".join(
        str({**vars(record), "facts": str(vars(record)["facts"])}) for record in records
    )
    assert "zeppelin" not in whole


class Unfinished(httpx.AsyncByteStream):
    """A body that sends some bytes, and then nothing more."""

    def __init__(self) -> None:
        self.sent = asyncio.Event()

    async def __aiter__(self) -> Any:
        yield b"x"
        self.sent.set()
        await asyncio.Event().wait()


class Gated:
    """An application that counts its running requests and answers once its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.n_running = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        if scope["path"] == "/slow":
            self.n_running += 1
            await self.gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def test_a_slow_body_takes_no_turn_and_a_full_queue_is_refused() -> None:
    app = Gated()
    guard = Guard(app, limits=ServeLimits(concurrency=2, max_waiting=2), keys=None, scope=None)
    transport = httpx.ASGITransport(app=guard)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        bodies = [Unfinished(), Unfinished()]
        sending = [asyncio.ensure_future(client.post("/", content=body)) for body in bodies]
        await asyncio.gather(*(body.sent.wait() for body in bodies))
        async with asyncio.timeout(5):
            assert (await client.post("/")).status_code == 200
        running = [asyncio.ensure_future(client.post("/slow")) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert app.n_running == 2
        refused = await client.post("/")
        assert (refused.status_code, refused.json()["error"]["type"]) == (503, "busy")
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        late = await client.post("/slow", headers={"X-Deadline-S": "0.05"})
        assert late.status_code == 504
        assert app.n_running == 2
        app.gate.set()
        assert {(await task).status_code for task in running} == {200}
