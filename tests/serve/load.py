"""A load on a running server: many clients of many tenants, each answer checked."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from tests.serve.running import secret_of, tenants_in, word

# What a client does, by how often; the last three are to be refused.
_MIX = {
    "search": 70,
    "keyword": 10,
    "explain": 4,
    "stream": 4,
    "get": 5,
    "add": 3,
    "wrong_key": 2,
    "other_tenant": 1,
    "top_k": 1,
}
_EXPECTED = {"wrong_key": 401, "other_tenant": 403, "top_k": 422}


@dataclass
class Load:
    """What came of a load.

    Attributes:
        seconds: How long it took in all.
        latencies_ms: Of each request.
        statuses: How many answers had which status, by kind of request.
        crossed: Answers with another tenant's name in them.
        unexpected: Answers with another status than asked for, or that are wrong.
    """

    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    statuses: dict[tuple[str, int], int] = field(default_factory=dict)
    crossed: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """The latency in milliseconds that this share of requests stays below."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(frozen=True)
class _Request:
    kind: str
    tenant: str
    number: int
    other: str

    def encoded(self) -> bytes:
        """The request in HTTP/1.1, by hand: a client library takes more time than the server."""
        key = "unknown-0123456789" if self.kind == "wrong_key" else secret_of(self.tenant)
        query = {"query": f"report {word(self.number)} annual leave", "top_k": 10}
        path, body = "/v1/search", query
        match self.kind:
            case "get":
                path, body = f"/v1/documents/{self.tenant}-{self.number}", {}
            case "add":
                text = f"Report of {self.tenant} that is added under load."
                document = {"id": f"{self.tenant}-new-{self.number}", "text": text}
                path, body = "/v1/documents", {"documents": [document]}
            case "keyword":
                body = {**query, "mode": "keyword"}
            case "explain" | "stream":
                path = f"/v1/{self.kind}"
            case "other_tenant":
                body = {**query, "scope": {"tenant_id": self.other}}
            case "top_k":
                body = {**query, "top_k": 100_000}
        content = json.dumps(body).encode() if body else b""
        lines = [
            f"{'POST' if body else 'GET'} {path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {key}",
            "Content-Type: application/json",
            f"Content-Length: {len(content)}",
        ]
        return "\r\n".join([*lines, "", ""]).encode() + content


@dataclass(frozen=True)
class _Answer:
    status: int
    text: str


@dataclass
class _Connection:
    """A connection of one client, which is kept open."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, url: str) -> Self:
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def send(self, request: bytes) -> _Answer:
        self.writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = head.split("\r\n")
        headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}
        if "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = b"".join([part async for part in self._chunks()])
        return _Answer(int(status.split()[1]), body.decode())

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self.reader.readline(), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readline()


async def load(
    url: str,
    tenants: list[str],
    *,
    clients: int,
    requests: int,
    per_tenant: int,
    seed: int = 0,
    without: frozenset[str] = frozenset(),
) -> Load:
    """Send requests with so many clients at a time, and check each answer.

    Args:
        url: Of the server.
        tenants: Whose keys are used, in turn; `fill` wrote their documents.
        clients: Each with a connection of its own, and one request after another.
        requests: How many in all.
        per_tenant: How many documents each tenant has.
        seed: Of what is requested.
        without: Kinds of requests that are left out, such as ``add``.
    """
    chance = random.Random(seed)
    mix = {kind: share for kind, share in _MIX.items() if kind not in without}
    kinds = chance.choices([*mix], [*mix.values()], k=requests)
    pending = [
        _Request(
            kind,
            tenants[i % len(tenants)],
            chance.randrange(per_tenant),
            tenants[(i + 1) % len(tenants)],
        )
        for i, kind in enumerate(kinds)
    ]
    outcome = Load()
    start = time.perf_counter()
    async with asyncio.timeout(600):
        await asyncio.gather(*(_client(url, pending, outcome) for _ in range(clients)))
    outcome.seconds = time.perf_counter() - start
    return outcome


async def _client(url: str, pending: list[_Request], outcome: Load) -> None:
    connection = await _Connection.open(url)
    while pending:
        request = pending.pop()
        start = time.perf_counter()
        try:
            answer = await connection.send(request.encoded())
        except (OSError, asyncio.IncompleteReadError) as error:
            outcome.unexpected.append(f"{request}: {error!r}")
            connection = await _Connection.open(url)
            continue
        outcome.latencies_ms.append(1e3 * (time.perf_counter() - start))
        key = (request.kind, answer.status)
        outcome.statuses[key] = outcome.statuses.get(key, 0) + 1
        _check(request, answer, outcome)
    connection.writer.close()


def _check(request: _Request, answer: _Answer, outcome: Load) -> None:
    status = _EXPECTED.get(request.kind, 200)
    if answer.status != status:
        outcome.unexpected.append(f"{request}: {answer.status} {answer.text[:200]}")
    elif tenants_in(answer.text) - {request.tenant}:
        outcome.crossed.append(f"{request}: {answer.text[:200]}")
    elif status == 200 and request.kind != "add":
        # Each search names one document by a word that no other has.
        expected = f"Report {word(request.number)} of {request.tenant}:"
        if expected not in answer.text:
            outcome.unexpected.append(f"{request}: not found: {answer.text[:200]}")
