"""Turns of requests: no key takes those of another, nor the memory for its bodies."""

import asyncio
from typing import Any

import httpx
import pytest

from llama_retrieval_ext.serve import ApiKeys, ServeLimits
from llama_retrieval_ext.serve.guard import Guard, Message, Receive, Send
from tests.serve.conftest import KEYS, bearer


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
