"""The services over HTTP: what they answer, to whom, and what without an LLM."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_retrieval_ext.errors import MissingDependencyError
from llama_retrieval_ext.serve import ServeLimits
from llama_retrieval_ext.testing import ScriptedLLM
from tests.serve.conftest import Connect, bearer, events_of

pytestmark = pytest.mark.slow

FINDINGS = '{"findings": [{"metric": "challenges", "text": "Late <b>crane</b>.", "sources": [1]}]}'
INSIGHTS = '{"insights": [{"title": "Rest", "explanation": "So.", "evidence": [1]}]}'
WEEK = {"user_id": "ann", "start_date": "2026-05-04", "end_date": "2026-05-10"}
LOG = {"user_id": "ann", "timestamp": "2026-05-05T09:00:00Z"}
FOUND: dict[str, dict[str, Any]] = {
    "documents": {"query": "annual leave"},
    "related": {"query": "leave"},
    "timeline": {"query": "leave"},
    "work-logs": {**LOG, "text": "New."},
}
WRITTEN: dict[str, dict[str, Any]] = {
    "ask": {"query": "How much annual leave?"},
    "ask/stream": {"query": "How much annual leave?"},
    "insights": {"query": "annual leave"},
    "mimic": {"query": "annual leave"},
    "weekly-report": WEEK,
}


def said(prompt: str) -> str:
    """An answer that shows which tenants the model could read of."""
    seen = "+".join(tenant for tenant in ("acme", "globex") if tenant in prompt)
    if "overview of a weekly report" in prompt:
        return f"The crane was late [1]. {seen}"
    if "insights" in prompt:
        return INSIGHTS.replace("Rest", f"Rest {seen}")
    return FINDINGS if "findings" in prompt else f"It is 25 days [1]. {seen}"


def post(client: TestClient, route: str, body: dict[str, Any], name: str = "acme") -> Any:
    return client.post(f"/v1/services/{route}", json=body, headers=bearer(name))


@pytest.fixture
def client(connect: Connect) -> TestClient:
    return connect(llm=ScriptedLLM(said))


def test_each_service_answers_each_tenant_from_its_own_documents(client: TestClient) -> None:
    for tenant, other in (("acme", "globex"), ("globex", "acme")):
        log = {**LOG, "text": f"The crane of {tenant} was late."}
        assert post(client, "work-logs", log, tenant).json()["user_id"] == "ann"
        dated = {"documents": [{"id": "d", "text": f"Tower Crane at {tenant}.", "metadata": {}}]}
        dated["documents"][0]["metadata"] = {"date": "2026-03-01"}
        assert client.post("/v1/documents", json=dated, headers=bearer(tenant)).status_code == 200
        answers = {
            route: post(client, route, body, tenant)
            for route, body in {**FOUND, **WRITTEN}.items()
            if route != "work-logs"
        }
        for route, answer in answers.items():
            assert answer.status_code == 200, (route, answer.text)
            assert other not in answer.text, route
        documents = answers["documents"].json()["documents"]
        assert f"Annual leave at {tenant} in hr is 25 days." in {d["content"] for d in documents}
        cited = answers["ask"].json()
        assert cited["answer"] == f"It is 25 days [1]. {tenant}"
        assert cited["citations"][0]["number"] == 1
        assert tenant in cited["citations"][0]["text"]
        events = events_of(answers["ask/stream"].text)
        assert {name for name, _ in events[:-1]} == {"partial"}
        assert events[-1] == ("result", cited)
        assert answers["insights"].json()["insights"][0]["title"] == f"Rest {tenant}"
        assert answers["mimic"].json()["text"].endswith(tenant)
        report = answers["weekly-report"].json()
        assert [each["text"] for each in report["work_logs"]] == [log["text"]]
        assert report["sections"]["challenges"][0]["text"] == "Late <b>crane</b>."
        happened = answers["timeline"].json()["events"]
        assert [each["source"] for each in happened] == ["document", "memory"]


def test_a_report_is_json_markdown_or_html(client: TestClient) -> None:
    post(client, "work-logs", {**LOG, "text": "The crane was late."})
    markdown = post(client, "weekly-report?view=markdown", WEEK)
    assert markdown.headers["content-type"].startswith("text/markdown")
    assert markdown.text.startswith("# Weekly report: ann, 2026-05-04 to 2026-05-10")
    html = post(client, "weekly-report?view=html", WEEK)
    assert html.headers["content-type"].startswith("text/html")
    for page in (markdown.text, html.text):
        assert "crane" in page
        assert "<b>crane" not in page
    assert post(client, "weekly-report?view=pdf", WEEK).status_code == 422


def test_related_names_are_found_in_passages_that_match_the_filters(client: TestClient) -> None:
    text = "Ada Stone checked the Tower Crane at North Quay."
    documents = {"documents": [{"id": "site", "text": text, "metadata": {"year": 2030}}]}
    assert client.post("/v1/documents", json=documents).status_code == 200
    filters = {"filters": [{"key": "year", "value": 2030}]}
    found = post(client, "related", {"query": "Tower Crane", "filters": filters, "top_k": 2})
    assert [each["name"] for each in found.json()["entities"]] == ["Ada Stone", "North Quay"]
    assert found.json()["entities"][0]["passages"]


def test_keys_and_limits_hold_for_each_route(client: TestClient) -> None:
    for route, body in {**FOUND, **WRITTEN}.items():
        path = f"/v1/services/{route}"
        unknown = {"Authorization": "Bearer not-a-key-0123456789"}
        assert client.post(path, json=body, headers=unknown).status_code == 401, route
        beyond = post(client, route, {**body, "scope": {"tenant_id": "globex"}})
        assert (beyond.status_code, beyond.json()["error"]["type"]) == (403, "out_of_scope"), route
        assert post(client, route, {**body, "surprise": 1}).status_code == 422, route
        late = client.post(path, json=body, headers={**bearer("acme"), "X-Deadline-S": "1e-9"})
        assert late.status_code == 504, route
        # The knowledge base requires a scope, and this key has none.
        assert "scope_required" in post(client, route, body, "root").text, route
    for route in ("documents", "related", "timeline", "insights"):
        many = post(client, route, {"query": "leave", "top_k": 101})
        assert (many.status_code, many.json()["error"]["type"]) == (422, "too_many")
    assert post(client, "work-logs", FOUND["work-logs"], "reader").status_code == 403
    backwards = {"query": "leave", "start": "2026-05-02", "end": "2026-05-01"}
    for route, body in (
        ("timeline", backwards),
        ("weekly-report", {**WEEK, "end_date": "2026-05-01"}),
    ):
        refused = post(client, route, body)
        assert (refused.status_code, refused.json()["error"]["type"]) == (422, "bad_request")
        assert "ends before it begins" in refused.text


def test_without_an_llm_routes_that_need_none_answer(connect: Connect) -> None:
    client = connect()
    for route, body in FOUND.items():
        assert post(client, route, body).status_code == 200, route
    for route, body in WRITTEN.items():
        refused = post(client, route, body)
        assert (refused.status_code, refused.json()["error"]["type"]) == (501, "no_llm"), route
        assert "--llm-url" in refused.json()["error"]["message"]


def test_the_message_of_a_failing_llm_stays_in_the_server(connect: Connect) -> None:
    secret = RuntimeError("http://10.0.0.7 refused the key sk-1")
    client = connect(llm=ScriptedLLM(lambda _: secret))
    post(client, "work-logs", FOUND["work-logs"])
    for route, body in WRITTEN.items():
        answer = post(client, route, body)
        assert answer.status_code == (200 if route == "ask/stream" else 502), (route, answer.text)
        assert "generation_failed" in answer.text
        assert "sk-1" not in answer.text


@pytest.mark.parametrize(("log", "overview"), [("New.", "overview"), ("今天检查了塔吊。", "概述")])
def test_a_failing_overview_is_named_without_its_reason(
    connect: Connect, log: str, overview: str
) -> None:
    replies = iter([FINDINGS])
    secret = RuntimeError("http://10.0.0.7 refused the key sk-1")
    client = connect(llm=ScriptedLLM(lambda _: next(replies, secret)))
    post(client, "work-logs", {**LOG, "text": log})
    report = post(client, "weekly-report", WEEK)
    assert report.json()["degraded"] == ["comparison", overview]


def test_a_late_llm_is_an_exceeded_deadline_on_each_route(connect: Connect) -> None:
    late = connect(llm=ScriptedLLM(lambda _: (5.0, "late")))
    post(late, "work-logs", FOUND["work-logs"])
    headers = {**bearer("acme"), "X-Deadline-S": "0.1"}
    for route, body in WRITTEN.items():
        answer = late.post(f"/v1/services/{route}", json=body, headers=headers)
        assert answer.status_code == (200 if route == "ask/stream" else 504), (route, answer.text)
        assert "deadline_exceeded" in answer.text
        assert "generation_failed" not in answer.text


def test_each_route_is_documented_with_examples_that_are_valid(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    described = {path.removeprefix("/v1/services/") for path in paths if "/services/" in path}
    assert described == {*FOUND, *WRITTEN}
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for route in described:
        operation = paths[f"/v1/services/{route}"]["post"]
        answers = operation["responses"]["200"]["content"].values()
        assert any("example" in answer for answer in answers), route
        named = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        (example,) = schemas[named.rpartition("/")[2]]["examples"]
        assert post(client, route, example).status_code == 200, route


def test_a_request_without_a_number_of_hits_keeps_to_the_limit(connect: Connect) -> None:
    client = connect(limits=ServeLimits(max_top_k=1), llm=ScriptedLLM(said))
    for route in ("search", "services/documents", "services/timeline", "services/insights"):
        answer = client.post(f"/v1/{route}", json={"query": "leave"})
        assert answer.status_code == 200, answer.text
    assert len(client.post("/v1/search", json={"query": "leave"}).json()["hits"]) == 1
    many = client.post("/v1/search-many", json={"queries": ["leave"]})
    assert len(many.json()["results"][0]["hits"]) == 1


def test_a_part_that_is_not_installed_is_named(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise MissingDependencyError("finding Chinese names", "zh")

    monkeypatch.setattr("llama_retrieval_ext.services.knowledge.related_in_passages", missing)
    answer = connect().post("/v1/services/related", json={"query": "leave"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (501, "not_installed")
    assert "the extra 'zh'" in answer.json()["error"]["message"]
