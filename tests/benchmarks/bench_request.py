"""Processor time of a search: in process, and through the HTTP application without sockets.

``python -m tests.benchmarks.bench_request``: one tenant's 500 of 10,000 documents,
hybrid and keyword search.
"""

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding, Scope
from llama_retrieval_ext.serve import ApiKeys, create_app
from tests.benchmarks.bench_serve import PER_TENANT, TENANTS
from tests.serve.running import fill, keys_of, secret_of, word

ROUNDS = 300


async def post(app: Any, body: dict[str, object], key: str) -> None:
    """Send a search to an ASGI application."""
    content = json.dumps(body).encode()
    headers = {
        "host": "127.0.0.1",
        "authorization": f"Bearer {key}",
        "content-type": "application/json",
        "content-length": str(len(content)),
    }
    request = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/search",
        "raw_path": b"/v1/search",
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(request, receive, send)
    assert sent[0]["status"] == 200, sent


async def run(kb: KnowledgeBase) -> None:
    """Print the medians."""
    app = create_app(kb, keys=ApiKeys.parse(keys_of(TENANTS)))
    times: dict[str, list[float]] = {}
    for number in range(ROUNDS):
        tenant = TENANTS[number % len(TENANTS)]
        for place, mode in enumerate(("hybrid", "keyword")):
            for way in ("in process", "HTTP"):
                text = f"report {word((7 * number + 3 * place + len(way)) % PER_TENANT)} leave"
                start = time.process_time()
                if way == "HTTP":
                    await post(app, {"query": text, "mode": mode}, secret_of(tenant))
                else:
                    kb.search(text, "hybrid" if place == 0 else "keyword", scope=Scope(tenant))
                taken = 1e3 * (time.process_time() - start)
                times.setdefault(f"{mode}, {way}", []).append(taken)
    print({name: f"{statistics.median(each):.2f} ms" for name, each in times.items()})


def main() -> None:
    """Fill a knowledge base, and measure."""
    with tempfile.TemporaryDirectory() as name:
        url = f"embedded:{Path(name) / 'kb'}"
        fill(url, TENANTS, per_tenant=PER_TENANT)
        with KnowledgeBase.open(url, embed_model=LocalEmbedding(), require_scope=True) as kb:
            asyncio.run(run(kb))


if __name__ == "__main__":
    main()
