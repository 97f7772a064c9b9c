"""Routes for documents: add, list, read, delete."""

import pytest

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.serve import ServeLimits
from tests.serve.conftest import Connect, bearer, texts

pytestmark = pytest.mark.slow


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


def test_a_document_that_fails_is_reported_and_the_others_are_added(connect: Connect) -> None:
    texts = {"good": "Good.", "bad": "broken", "twice": "One."}
    documents = [{"id": id_, "text": text} for id_, text in [*texts.items(), ("twice", "Two.")]]
    report = connect().post("/v1/documents", json={"documents": documents}).json()
    assert report["added"] == 2
    assert report["failures"]["bad"] == "the request failed; the log has its id"
    assert "given twice in one call" in report["failures"]["twice"]


def test_more_documents_than_the_limit_are_refused(connect: Connect) -> None:
    client = connect(limits=ServeLimits(max_documents=1))
    documents = [{"id": str(i), "text": "Text."} for i in range(2)]
    assert client.post("/v1/documents", json={"documents": documents}).status_code == 422
    assert client.get("/v1/documents?limit=100000").status_code == 422


def test_an_odd_document_id_is_not_found(connect: Connect) -> None:
    client = connect()
    for name in ("~nobody-has-this-name", "%00", "%ED%A0%80", "a%0Ab"):
        for method in ("GET", "DELETE"):
            assert client.request(method, f"/v1/documents/{name}").status_code == 404, name


def test_an_empty_name_stands_for_no_document(connect: Connect, kb: KnowledgeBase) -> None:
    client = connect()
    for method in ("GET", "PATCH", "DELETE"):
        answer = client.request(method, "/v1/documents/", json={"allowed": ["group:hr"]})
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            422,
            "name the path of a file or the id of a document, got ''",
        )
    assert len(kb.search("leave", scope=Scope("acme"))) == 2


def test_half_characters_of_a_document_are_replaced(connect: Connect) -> None:
    client = connect()
    sent = '{"documents": [{"id": "half", "text": "lost", "metadata": {"\\ud800": "\\ud800"}}]}'
    as_json = {"Content-Type": "application/json"}
    assert client.post("/v1/documents", content=sent, headers=as_json).json()["added"] == 1
    (passage,) = client.get("/v1/documents/half").json()["passages"]
    assert (passage["text"], passage["metadata"]["\ufffd"]) == ("lost", "\ufffd")
    events = client.post("/v1/stream", json={"query": "lost"})
    assert "event: result" in events.text


def test_a_document_cannot_pass_for_a_memory(connect: Connect) -> None:
    document = {"id": "log", "text": "I worked.", "metadata": {"memory_time": 1}}
    answer = connect().post("/v1/documents", json={"documents": [document]})
    assert answer.status_code == 422
    assert "memory_time is set by this server; leave it out" in answer.json()["error"]["message"]


def test_of_two_documents_of_one_id_the_first_is_taken_with_those_who_may_see_it(
    connect: Connect, kb: KnowledgeBase
) -> None:
    client = connect()
    first = {"id": "pay", "text": "The pay of Anna.", "allowed": ["group:hr"]}
    documents = [first, {"id": "pay", "text": "Other.", "allowed": None}]
    assert client.post("/v1/documents", json={"documents": documents}).json()["added"] == 1
    for principals, n_passages in (([], 0), (["group:hr"], 1)):
        assert len(kb.get("pay", scope=Scope("acme", principals=principals))) == n_passages


def test_ranking_rules_are_those_of_the_scope_in_yaml_or_json(
    connect: Connect, kb: KnowledgeBase
) -> None:
    client = connect()
    rules = {"pins": [{"document": "it/leave"}]}
    path = "/v1/ranking?kb_id=hr&kb_id=it"
    assert client.put(path, content="pins:\n  - document: it/leave\n").json() == rules
    assert client.get("/v1/ranking?kb_id=it&kb_id=hr").json() == rules
    assert kb.ranking(scope=Scope("acme", ["hr", "it"])).to_dict() == rules
    assert client.get("/v1/ranking").json() == {}
    hits = client.post("/v1/search", json={"query": "leave in hr"}).json()["hits"]
    assert hits[0]["document_id"] == "it/leave"
    assert client.get(path, headers=bearer("globex")).json() == {}
    wrong = client.put(path, content="pins:\n  - documents: it/leave\n")
    assert wrong.status_code == 422
    assert "the body, line 2, column 5" in wrong.json()["error"]["message"]
    assert client.put(path, json=rules, headers=bearer("reader")).status_code == 403
    assert client.put("/v1/ranking?tenant_id=globex", json=rules).status_code == 403
    assert client.put("/v1/ranking", json={}, headers=bearer("root")).status_code == 403
    assert client.put(path, json={}).json() == client.get(path).json() == {}
