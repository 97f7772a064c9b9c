"""A load on a running server: many clients of many tenants, each answer checked."""

import asyncio
import random
import time
from dataclasses import dataclass, field

import httpx

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

    def arguments(self) -> dict[str, object]:
        """What httpx sends."""
        key = "unknown-0123456789" if self.kind == "wrong_key" else secret_of(self.tenant)
        headers = {"Authorization": f"Bearer {key}"}
        query = {"query": f"report {word(self.number)} annual leave", "top_k": 10}
        path, body = "/v1/search", query
        match self.kind:
            case "get":
                url = f"/v1/documents/{self.tenant}-{self.number}"
                return {"method": "GET", "url": url, "headers": headers}
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
        return {"method": "POST", "url": path, "headers": headers, "json": body}


async def load(
    url: str, tenants: list[str], *, clients: int, requests: int, per_tenant: int, seed: int = 0
) -> Load:
    """Send requests with so many clients at a time, and check each answer.

    Args:
        url: Of the server.
        tenants: Whose keys are used, in turn; `fill` wrote their documents.
        clients: Each with a connection of its own, and one request after another.
        requests: How many in all.
        per_tenant: How many documents each tenant has.
        seed: Of what is requested.
    """
    chance = random.Random(seed)
    kinds = chance.choices([*_MIX], [*_MIX.values()], k=requests)
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
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        await asyncio.gather(*(_client(client, pending, outcome) for _ in range(clients)))
    outcome.seconds = time.perf_counter() - start
    return outcome


async def _client(client: httpx.AsyncClient, pending: list[_Request], outcome: Load) -> None:
    while pending:
        request = pending.pop()
        start = time.perf_counter()
        try:
            answer = await client.request(**request.arguments())  # type: ignore[arg-type]
        except httpx.TransportError as error:
            outcome.unexpected.append(f"{request}: {error!r}")
            continue
        outcome.latencies_ms.append(1e3 * (time.perf_counter() - start))
        key = (request.kind, answer.status_code)
        outcome.statuses[key] = outcome.statuses.get(key, 0) + 1
        _check(request, answer, outcome)


def _check(request: _Request, answer: httpx.Response, outcome: Load) -> None:
    status = _EXPECTED.get(request.kind, 200)
    if answer.status_code != status:
        outcome.unexpected.append(f"{request}: {answer.status_code} {answer.text[:200]}")
    elif tenants_in(answer.text) - {request.tenant}:
        outcome.crossed.append(f"{request}: {answer.text[:200]}")
    elif status == 200 and request.kind != "add":
        # Each search names one document by a word that no other has.
        expected = f"Report {word(request.number)} of {request.tenant}:"
        if expected not in answer.text:
            outcome.unexpected.append(f"{request}: not found: {answer.text[:200]}")
