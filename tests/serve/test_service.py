"""A service over its life: writes that go on, readiness, stopping."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Event

import pytest

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.serve import ServeLimits
from llama_retrieval_ext.serve.service import Service
from tests.serve.conftest import Connect


@pytest.mark.slow
def test_stopping_finishes_writes_and_takes_no_more(
    connect: Connect, kb: KnowledgeBase, gate: Event
) -> None:
    client = connect()
    document = {"documents": [{"id": "slow", "text": "slow to embed"}]}
    answer = client.post("/v1/documents", json=document, headers={"X-Deadline-S": "0.1"})
    assert answer.status_code == 504
    assert answer.json()["error"]["message"] == "the deadline ran out; the write goes on"
    assert client.get("/ready").status_code == 200
    with ThreadPoolExecutor() as threads:
        stopping = threads.submit(client.__exit__)
        time.sleep(0.1)
        assert not stopping.done()
        gate.set()
        stopping.result(20)
    assert kb.get("slow", scope=Scope("acme"))


@pytest.mark.slow
def test_writes_that_go_on_after_their_deadlines_are_limited(connect: Connect, gate: Event) -> None:
    client, late = connect(limits=ServeLimits(concurrency=2)), {"X-Deadline-S": "0.05"}
    slow = {"documents": [{"id": "slow", "text": "slow to embed"}]}
    answers = [client.post("/v1/documents", json=slow, headers=late) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [504, 504, 503]
    assert answers[-1].json()["error"]["type"] == "busy"
    gate.set()


@pytest.mark.slow
def test_readiness_follows_the_store(connect: Connect, kb: KnowledgeBase) -> None:
    client = connect()
    del client.headers["Authorization"]
    assert client.get("/ready").json() == {"status": "ready"}
    other = connect()
    kb.close()
    assert other.get("/health").status_code == 200
    assert (other.get("/ready").status_code, other.get("/ready").json()) == (
        503,
        {"status": "not ready"},
    )
    stopped = other.post("/v1/search", json={"query": "leave"})
    assert (stopped.status_code, stopped.headers["Retry-After"]) == (503, "1")


async def test_the_store_is_asked_once_for_many_questions_whether_it_is_ready(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, asked = kb.info, count()

    def slow() -> object:
        next(asked)
        time.sleep(0.05)
        return info()

    monkeypatch.setattr(kb, "info", slow)
    service = Service(kb, ServeLimits())
    assert all(await asyncio.gather(*(service.is_ready() for _ in range(20))))
    assert next(asked) == 1
