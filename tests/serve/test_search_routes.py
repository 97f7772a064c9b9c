"""Routes for search, streamed search and explanations."""

import json
from threading import Event

import pytest

from llama_retrieval_ext import RRF, KnowledgeBase, Scope
from llama_retrieval_ext.serve import ServeLimits
from tests.serve.conftest import Connect, bearer, events_of, texts

pytestmark = pytest.mark.slow


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
        whole = client.post("/v1/explain", json={"query": "slow annual leave"}).json()
    *partials, last = events_of(answer.text)
    assert partials
    assert (last[0], last[1]["hits"]) == ("result", whole["hits"])
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


def test_a_part_that_failed_is_named_without_its_message(connect: Connect) -> None:
    client = connect()
    body = {"query": "broken leave"}
    answer = client.post("/v1/search", json=body).json()
    assert answer["degraded"] == [{"where": "vector", "reason": "RuntimeError"}]
    assert len(answer["hits"]) == 2
    for path in ("search", "stream", "explain", "explain?view=html"):
        assert "cannot embed" not in client.post(f"/v1/{path}", json=body).text


def test_many_queries_are_answered_as_each_alone_and_a_failing_one_says_so(
    connect: Connect,
) -> None:
    client = connect(limits=ServeLimits(max_queries=3))
    queries = ["annual leave", "broken", "annual leave at globex"]
    options = {"mode": "vector", "top_k": 1}
    answer = client.post("/v1/search-many", json={"queries": queries, **options})
    first, failed, last = answer.json()["results"]
    alone = client.post("/v1/search", json={"query": queries[0], **options}).json()
    assert first == {**alone, "cursor": None}  # only a single search has pages
    assert failed["hits"] == []
    assert failed["degraded"] == [{"where": "vector", "reason": "RuntimeError"}]
    assert all("acme" in hit["text"] for hit in last["hits"])
    beyond = client.post("/v1/search-many", json={"queries": [*queries, "leave"]})
    assert beyond.json()["error"]["message"] == "this server takes at most 3 queries at once"
    foreign = {"queries": ["leave"], "scope": {"tenant_id": "globex"}}
    assert client.post("/v1/search-many", json=foreign).status_code == 403


def test_equal_questions_of_any_key_are_embedded_once(
    connect: Connect, kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[str] = []
    embed = type(kb.embed_model)._get_query_embedding

    def counted(model: object, text: str) -> list[float]:
        embedded.append(text)
        return embed(model, text)  # type: ignore[arg-type]

    monkeypatch.setattr(type(kb.embed_model), "_get_query_embedding", counted)
    client = connect()
    for key in ("acme", "acme", "globex"):
        headers = bearer(key)
        found = client.post("/v1/search", json={"query": "annual leave"}, headers=headers)
        assert all(key in text for text in texts(found))
    for route in ("stream", "services/documents", "services/timeline"):
        answer = client.post(f"/v1/{route}", json={"query": "annual leave"})
        assert answer.status_code == 200
    assert embedded == ["annual leave"]


def test_typing_errors_are_corrected_unless_the_request_says_no(connect: Connect) -> None:
    client = connect()
    corrected = client.post("/v1/search", json={"query": "anual leave"}).json()
    assert corrected["corrected"] == {
        "text": "searched for 'annual' instead of 'anual'",
        "query": "annual leave",
        "words": {"anual": "annual"},
    }
    assert corrected["hints"] == [corrected["corrected"]["text"]]
    body = {"query": "anual leave", "correct": False}
    assert client.post("/v1/search", json=body).json()["corrected"] is None
    many = client.post("/v1/search-many", json={"queries": ["anual"], "correct": False}).json()
    assert many["results"][0]["corrected"] is None


def test_facets_and_pages_are_of_what_the_key_may_see(connect: Connect) -> None:
    client = connect()
    counted = client.post("/v1/facets", json={"fields": {"year": [2025]}, "query": "leave"}).json()
    assert counted["facets"]["year"]["values"]
    assert {value["value"] for value in counted["facets"]["year"]["values"]} <= {2024, 2025}
    wrong = client.post("/v1/facets", json={"fields": ["year"], "as_of": "soon"})
    assert wrong.status_code == 422
    assert "as_of must be a date" in wrong.text
    body = {"query": "annual leave", "top_k": 1, "sort": "-year"}
    first = client.post("/v1/search", json=body).json()
    second = client.post("/v1/search", json={**body, "cursor": first["cursor"]}).json()
    assert first["hits"][0]["node_id"] != second["hits"][0]["node_id"]
    other = connect("globex").post("/v1/search", json={**body, "cursor": first["cursor"]})
    assert other.status_code == 403
    failing = {"fields": ["year"], "query": "broken leave", "mode": "hybrid", "first": 2}
    partial = client.post("/v1/facets", json=failing).json()
    assert (partial["approximate"], partial["reasons"]) == (True, ["vector failed: RuntimeError"])
    foreign = {"fields": ["year"], "scope": {"tenant_id": "globex"}}
    assert client.post("/v1/facets", json=foreign).status_code == 403
    assert client.post("/v1/facets", json={"fields": ["tenant_id"]}).status_code == 422
