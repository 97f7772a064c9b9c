"""What the server answers: searches, streams, explanations, documents, errors, logs."""

import asyncio
import json
import logging
import re
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import httpx
import pytest

from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.serve import ApiKeys, ServeLimits, create_app
from llama_retrieval_ext.stages.fusion import RRF
from tests.cases import each_case
from tests.serve.conftest import KEYS, Connect, bearer, texts


def events_of(text: str) -> list[tuple[str, Any]]:
    blocks = [block.split("\n", 1) for block in text.strip().split("\n\n")]
    return [(n.removeprefix("event: "), json.loads(d.removeprefix("data: "))) for n, d in blocks]


def test_search_is_that_of_the_knowledge_base(connect: Connect, kb: KnowledgeBase) -> None:
    client = connect()
    filters = {"filters": [{"key": "year", "operator": ">=", "value": 2025}]}
    answer = client.post("/v1/search", json={"query": "annual leave", "filters": filters})
    assert texts(answer) == ["Annual leave at acme in it is 25 days."]
    for mode in ("hybrid", "vector", "keyword"):
        body = {"query": "annual leave", "mode": mode, "top_k": 1}
        direct = kb.search("annual leave", mode, top_k=1, scope=Scope("acme"))
        answer = client.post("/v1/search", json=body).json()
        expected = {name: value for name, value in direct.to_dict().items() if name != "trace"}
        assert answer == json.loads(json.dumps(expected))
    assert client.get("/v1/fields").json() == {"fields": {"year": {"int": 2}}}


def test_a_stream_has_the_ranking_after_each_leg_and_ends_with_the_whole(
    connect: Connect, kb: KnowledgeBase, gate: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect()
    gate.set()
    # The engine answers both legs of its own hybrid search at once.
    legs = (kb.retriever("vector") | kb.retriever("keyword")) >> RRF()
    with monkeypatch.context() as patched:
        patched.setattr(kb, "retriever", lambda *_, **__: legs)
        answer = client.post("/v1/stream", json={"query": "slow annual leave"})
        whole = client.post("/v1/search", json={"query": "slow annual leave"}).json()
    *partials, last = events_of(answer.text)
    assert partials
    assert last == ("result", whole)
    for name, partial in partials:
        assert name == "partial"
        assert {hit["text"] for hit in partial["hits"]} <= {hit["text"] for hit in whole["hits"]}
    answer = client.post("/v1/stream", json={"query": "slow annual leave"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    (one,) = events_of(answer.text)
    assert one == ("result", client.post("/v1/search", json={"query": "slow annual leave"}).json())
    failed = client.post("/v1/stream", json={"query": "broken", "mode": "vector"})
    assert events_of(failed.text) == [
        (
            "error",
            {"error": {"type": "internal", "message": "the request failed; the log has its id"}},
        )
    ]
    assert client.post("/v1/stream", json={"query": "leave", "top_k": 0}).status_code == 422


def test_explain_says_why_as_json_and_as_a_view(connect: Connect) -> None:
    client = connect()
    facts = client.post("/v1/explain", json={"query": "annual leave"}).json()
    assert [account["rank"] for account in facts["accounts"]] == [1, 2]
    assert facts["trace"]
    view = client.post("/v1/explain?view=html", json={"query": "<script>annual"})
    assert view.headers["content-type"].startswith("text/html")
    assert "Why each hit ranks where it does" in view.text
    assert "<script" not in view.text


def test_documents_are_added_listed_read_and_deleted(connect: Connect, kb: KnowledgeBase) -> None:
    client = connect()
    document = {"id": "it/vpn #1", "text": "VPN needs a token.", "metadata": {"year": 2026}}
    body = {"documents": [document], "scope": {"kb_ids": ["it"]}}
    assert client.post("/v1/documents", json=body).json()["added"] == 1
    assert client.post("/v1/documents", json=body).json()["unchanged"] == 1
    assert texts(client.post("/v1/search", json={"query": "token", "mode": "keyword"})) == [
        "VPN needs a token."
    ]
    listed = client.get("/v1/documents?kb_id=it&limit=1&offset=1").json()
    assert listed["total"] == 2
    assert listed["documents"] == [
        {
            "document_id": "it/vpn #1",
            "source": "it/vpn #1",
            "tenant_id": "acme",
            "kb_id": "it",
            "n_nodes": 1,
        }
    ]
    path = "/v1/documents/it/vpn%20%231"
    (passage,) = client.get(path).json()["passages"]
    assert (passage["text"], passage["metadata"]["year"]) == ("VPN needs a token.", 2026)
    assert client.get(path, headers=bearer("globex")).status_code == 404
    assert client.delete(path, headers=bearer("globex")).status_code == 404
    assert client.delete(path).json() == {"deleted": 1}
    assert client.get(path).status_code == 404
    assert len(kb.documents(scope=Scope("acme"))) == 2


def test_a_part_that_failed_is_named_without_its_message(connect: Connect) -> None:
    client = connect()
    body = {"query": "broken leave"}
    answer = client.post("/v1/search", json=body).json()
    assert answer["degraded"] == [{"where": "vector", "reason": "RuntimeError"}]
    assert len(answer["hits"]) == 2
    for path in ("search", "stream", "explain", "explain?view=html"):
        assert "cannot embed" not in client.post(f"/v1/{path}", json=body).text


def test_a_document_that_fails_is_reported_beside_the_others(connect: Connect) -> None:
    documents = [{"id": "good", "text": "Good."}, {"id": "bad", "text": "broken"}]
    report = connect().post("/v1/documents", json={"documents": documents}).json()
    assert report["added"] == 1
    assert report["failures"] == {"bad": "the request failed; the log has its id"}


@each_case(
    ("request_", "status", "kind"),
    [
        ({"json": {"query": ""}}, 422, "bad_request"),
        ({"json": {"query": "leave", "top_k": 101}}, 422, "too_many"),
        ({"json": {"query": "leave", "topk": 5}}, 422, "bad_request"),
        ({"json": {"query": "leave", "mode": "magic"}}, 422, "bad_request"),
        ({"json": {"query": "leave", "mode": "graph"}}, 422, "bad_request"),
        ({"json": {"query": "leave", "filters": {"filters": []}}}, 422, "bad_request"),
        (
            {"json": {"query": "leave", "filters": {"filters": [{"key": "a", "values": 1}]}}},
            422,
            "bad_request",
        ),
        ({"json": {"query": "leave", "scope": {"kb_ids": [" "]}}}, 422, "bad_request"),
        ({"content": b"{", "headers": {"Content-Type": "application/json"}}, 422, "bad_request"),
        ({"json": {"query": "leave"}, "headers": {"X-Deadline-S": "soon"}}, 422, "bad_deadline"),
        ({"json": {"query": "leave"}, "headers": {"X-Deadline-S": "nan"}}, 422, "bad_deadline"),
        ({"json": {"query": "leave"}, "headers": {"X-Deadline-S": "-1"}}, 422, "bad_deadline"),
        ({"content": b"x" * 2001}, 413, "too_large"),
        ({"content": iter([b"x" * 1500, b"x" * 1500])}, 413, "too_large"),
        ({"json": {"query": "broken", "mode": "vector"}}, 500, "internal"),
        (
            {"json": {"query": "slow", "mode": "vector"}, "headers": {"X-Deadline-S": ".05"}},
            504,
            "",
        ),
    ],
)
def test_what_cannot_be_answered_is_an_error_that_says_why(
    connect: Connect, request_: dict[str, Any], status: int, kind: str
) -> None:
    client = connect(limits=ServeLimits(max_body_bytes=2000))
    answer = client.post("/v1/search", **request_)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["type"] == (kind or "deadline_exceeded")
    assert error["message"]
    assert "broken" not in answer.text


def test_documents_have_limits_too(connect: Connect) -> None:
    client = connect(limits=ServeLimits(max_documents=1))
    documents = [{"id": str(i), "text": "Text."} for i in range(2)]
    assert client.post("/v1/documents", json={"documents": documents}).status_code == 422
    assert client.get("/v1/documents?limit=100000").status_code == 422


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


def test_the_page_loads_nothing_and_may_run_only_its_own_script(connect: Connect) -> None:
    client = connect()
    del client.headers["Authorization"]
    answer = client.get("/")
    nonces = re.findall(r'<script nonce="([^"]+)">', answer.text)
    policy = answer.headers["Content-Security-Policy"]
    assert len(nonces) == answer.text.count("<script") == 1
    assert f"script-src 'nonce-{nonces[0]}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"https?://|src=|@import|<link", answer.text)
    assert nonces[0] not in client.get("/").text


def test_openapi_describes_each_route_with_examples_and_the_key(connect: Connect) -> None:
    schema = connect().get("/openapi.json").json()
    methods = {(path, method) for path, each in schema["paths"].items() for method in each}
    assert {("/v1/documents/{document_id}", "delete"), ("/v1/stream", "post")} <= methods
    for path, each in schema["paths"].items():
        for operation in each.values():
            assert operation["description"]
            assert ("security" in operation) == path.startswith("/v1/")
    for name in ("SearchRequest", "AddRequest"):
        assert schema["components"]["schemas"][name]["examples"]
    for path, method in (
        ("/v1/search", "post"),
        ("/v1/documents", "post"),
        ("/v1/documents", "get"),
    ):
        content = schema["paths"][path][method]["responses"]["200"]["content"]
        assert content["application/json"]["example"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"query": "leave", "topk": 2}, "body.topk: there is no such field; write 'top_k'"),
        ("not an object", "send one with the header Content-Type: application/json"),
    ],
    ids=["wrong field", "no object"],
)
def test_a_wrong_body_is_answered_with_what_to_write(
    connect: Connect, body: object, words: str
) -> None:
    answer = connect().post("/v1/search", json=body)
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]


def test_a_body_that_is_no_json_is_named_as_such(connect: Connect) -> None:
    headers = {"Content-Type": "application/json"}
    answer = connect().post("/v1/search", content=b"{query", headers=headers)
    assert answer.json()["error"]["message"] == "the body is not valid JSON"


def test_a_wrong_method_is_answered_with_those_that_are_allowed(connect: Connect) -> None:
    answer = connect().get("/v1/search")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert answer.json()["error"]["type"] == "method_not_allowed"


def test_openapi_lists_the_errors_of_each_route(connect: Connect) -> None:
    schema = connect().get("/openapi.json").json()
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            if path.startswith("/v1/"):
                expected = {"400", "401", "403", "404", "413", "503", "504"}
                assert expected <= operation["responses"].keys()


@pytest.mark.parametrize("name", ["~nobody-has-this-name", "%00", "%ED%A0%80", "a%0Ab"])
def test_an_odd_document_id_is_not_found(connect: Connect, name: str) -> None:
    client = connect()
    for method in ("GET", "DELETE"):
        assert client.request(method, f"/v1/documents/{name}").status_code == 404
