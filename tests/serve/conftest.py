"""A knowledge base of two tenants, and clients of a server over it."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from llama_index.core import Document
from starlette.testclient import TestClient

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.serve import ApiKeys, create_app
from llama_retrieval_ext.testing import FakeEmbedding

SECRETS = {
    name: f"secret-of-{name}-0123456789" for name in ("acme", "acme-hr", "globex", "reader", "root")
}
ACME = Scope("acme")
KEYS = f"""
keys:
  - {{name: acme, key: {SECRETS["acme"]}, tenant_id: acme, write: true}}
  - {{name: acme-hr, key: {SECRETS["acme-hr"]}, tenant_id: acme, kb_ids: [hr], write: true}}
  - {{name: globex, key: {SECRETS["globex"]}, tenant_id: globex, write: true}}
  - {{name: reader, key: {SECRETS["reader"]}, tenant_id: acme}}
  - {{name: root, key: {SECRETS["root"]}, everything: true, write: true}}
"""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LOCAL = "http://127.0.0.1:8000"

Connect = Callable[..., TestClient]


class GatedEmbedding(FakeEmbedding):
    """Waits for a gate where a text has the word ``slow`` in it, and fails for ``broken``."""

    gate: Any = None  # an Event

    def _embed(self, text: str) -> list[float]:
        if "broken" in text:
            raise RuntimeError(f"cannot embed {text}")
        if "slow" in text:
            assert self.gate.wait(20)
        return super()._embed(text)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)


@pytest.fixture
def gate() -> Iterator[Event]:
    event = Event()
    yield event
    event.set()


@pytest.fixture
def kb(gate: Event) -> Iterator[KnowledgeBase]:
    model = GatedEmbedding(gate=gate)
    with KnowledgeBase.open("embedded::memory:", embed_model=model, require_scope=True) as opened:
        for tenant in ("acme", "globex"):
            for kb_id in ("hr", "it"):
                note = Document(
                    id_=f"{kb_id}/leave",
                    text=f"Annual leave at {tenant} in {kb_id} is 25 days.",
                    metadata={"year": 2024 if kb_id == "hr" else 2025},
                )
                opened.add([note], scope=Scope(tenant, [kb_id]), show_progress=False)
        yield opened


@pytest.fixture
def connect(kb: KnowledgeBase, gate: Event) -> Iterator[Connect]:
    """Starts an application, and returns a client of it that has the key of that name."""
    with ExitStack() as stack:

        def client(name: str = "acme", **options: Any) -> TestClient:
            app = create_app(kb, **{"keys": ApiKeys.parse(KEYS), **options})
            return stack.enter_context(TestClient(app, headers=bearer(name)))

        yield client
        gate.set()  # threads that wait end before their loop


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {SECRETS[name]}"}


def texts(answer: Any) -> list[str]:
    """The texts of the hits of a search."""
    assert answer.status_code == 200, answer.text
    return sorted(hit["text"] for hit in answer.json()["hits"])


ROUTES: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/v1/search", {"query": "leave"}),
    ("POST", "/v1/search-many", {"queries": ["leave"]}),
    ("POST", "/v1/stream", {"query": "leave"}),
    ("POST", "/v1/explain", {"query": "leave"}),
    ("POST", "/v1/documents", {"documents": [{"id": "new", "text": "New."}]}),
    ("GET", "/v1/documents", None),
    ("GET", "/v1/documents/hr/leave", None),
    ("PATCH", "/v1/documents/hr/leave", {"allowed": None}),
    ("DELETE", "/v1/documents/hr/leave", None),
    ("POST", "/v1/facets", {"fields": ["year"]}),
    ("GET", "/v1/fields", None),
    ("GET", "/v1/ranking", None),
]


def events_of(text: str) -> list[tuple[str, Any]]:
    blocks = [block.split("\n", 1) for block in text.strip().split("\n\n")]
    return [(n.removeprefix("event: "), json.loads(d.removeprefix("data: "))) for n, d in blocks]


def dom_of(url: str, folder: Path) -> str:
    """The document of a page after its scripts have run in a browser."""
    args = (*("--headless", "--no-sandbox", "--disable-gpu"), "--virtual-time-budget=10000")
    browser = [str(CHROMIUM), *args, f"--user-data-dir={folder / 'profile'}", "--dump-dom", url]
    ended = subprocess.run(browser, capture_output=True, text=True, check=True, timeout=60)
    return ended.stdout
