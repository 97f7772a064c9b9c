"""API keys: how they are read, and which scope each has."""

from pathlib import Path
from typing import Any

import pytest

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.errors import ConfigurationError, ScopeError
from llama_retrieval_ext.serve import ApiKeys, create_app
from tests.cases import cases
from tests.serve.conftest import KEYS, ROUTES, SECRETS, Connect, bearer, texts

pytestmark = pytest.mark.slow


def test_a_key_searches_its_scope_or_a_part_of_it_that_the_request_names(connect: Connect) -> None:
    client = connect()
    acme = [f"Annual leave at acme in {kb_id} is 25 days." for kb_id in ("hr", "it")]
    globex = [f"Annual leave at globex in {kb_id} is 25 days." for kb_id in ("hr", "it")]
    for name, requested, expected in (
        ("acme", {}, acme),
        ("acme", {"tenant_id": "acme", "kb_ids": ["it"]}, acme[1:]),
        ("acme-hr", {}, acme[:1]),
        ("acme-hr", {"kb_ids": ["hr", "it"]}, acme[:1]),
        ("globex", {}, globex),
        ("root", {"tenant_id": "globex"}, globex),
    ):
        body = {"query": "annual leave", "scope": requested}
        for mode in ("hybrid", "vector", "keyword"):
            answer = client.post("/v1/search", json={**body, "mode": mode}, headers=bearer(name))
            assert texts(answer) == expected, (name, requested, mode)
    refused = {"query": "leave", "scope": {"kb_ids": ["it"]}}
    assert client.post("/v1/search", json=refused, headers=bearer("acme-hr")).status_code == 403
    # The knowledge base requires a scope, and this key has none.
    unbounded = client.post("/v1/search", json={"query": "leave"}, headers=bearer("root"))
    assert (unbounded.status_code, unbounded.json()["error"]["type"]) == (403, "scope_required")


def test_a_key_that_may_only_read_writes_nothing(connect: Connect, kb: KnowledgeBase) -> None:
    client = connect("reader")
    for method, path, body in ROUTES:
        status = client.request(method, path, json=body).status_code
        writes = method in {"PATCH", "DELETE"} or (method, path) == ("POST", "/v1/documents")
        assert status == (403 if writes else 200), (method, path)
    assert len(kb.documents(scope=Scope("acme"))) == 2


def test_a_scope_of_the_server_bounds_each_key(connect: Connect, kb: KnowledgeBase) -> None:
    keys = ApiKeys.parse(
        f"keys: [{{name: acme, key: {SECRETS['acme']}, tenant_id: acme}},"
        f" {{name: root, key: {SECRETS['root']}, everything: true}}]"
    )
    client = connect("root", keys=keys, scope=Scope(kb_ids=["hr"]))
    assert texts(client.post("/v1/search", json={"query": "leave"})) == [
        f"Annual leave at {tenant} in hr is 25 days." for tenant in ("acme", "globex")
    ]
    with pytest.raises(ScopeError, match="the key 'acme' cannot be used"):
        create_app(kb, keys=keys, scope=Scope("globex"))


def test_keys_are_read_from_files_and_the_environment(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(KEYS, encoding="utf-8")
    monkeypatch.setenv("SERVER_KEYS", KEYS)
    monkeypatch.setenv("ONE_KEY", SECRETS["acme"])
    digest = "6d8ddd1f0b9e3ea0a8f6e2d0d6bd1ccdf6a3d5f0a2b6fd8d8d8c9be4e5a0c0de"
    one = "keys: [{name: a, key: {env: ONE_KEY}, kb_ids: [hr]}]"
    for keys in (ApiKeys.load(file), ApiKeys.load("env:SERVER_KEYS"), ApiKeys.parse(one)):
        assert keys.caller(SECRETS["acme"]) is not None
        assert keys.caller("") is None
        assert SECRETS["acme"] not in repr(keys)
    assert ApiKeys.parse(f"keys: [{{name: a, sha256: {digest}, tenant_id: a}}]").caller("a") is None


KEY, OTHER = "key: 0123456789abcdef", "key: fedcba9876543210, tenant_id: b"


@cases(
    ("text", "message"),
    [
        ("{", "neither YAML nor JSON"),
        ("keys: [{name: a, key: 0123456789abcdef, tenant_id: 012}]", "line 1, column 52.*quotes"),
        ("keys: [{name: a, name: b}]", "there once"),
        ("keys: []", "needs a list of keys"),
        ("keys: [{name: a, key: 0123456789abcdef}]", "needs a scope"),
        ("keys: [{name: a, key: 0123456789abcdef, everything: true, tenant_id: a}]", "a scope"),
        ("keys: [{name: a, key: short, tenant_id: a}]", "at least 16 characters"),
        ("keys: [{name: a, key: {env: NO_SUCH}, tenant_id: a}]", "'NO_SUCH', which is unset"),
        ("keys: [{name: a, tenant_id: a}]", "one of key and sha256"),
        ("keys: [{name: a, sha256: ab, tenant_id: a}]", "64 hexadecimal digits"),
        ("keys: [{name: a, key: 0123456789abcdef, tenant: a}]", "write 'tenant_id'"),
        ("keys: [{name: a, key: 0123456789abcdef, kb_ids: hr}]", "kb_ids: .*valid list"),
        ("keys: [{name: a, key: 1234567890123456, tenant_id: a}]", "key.str: .*valid string"),
        (f"keys: [{{name: a, {KEY}, tenant_id: a}}, {{name: a, {OTHER}}}]", "the same name"),
        (f"keys: [{{name: a, {KEY}, tenant_id: a}}, {{name: b, {KEY}, tenant_id: b}}]", "secret"),
    ],
)
def test_keys_that_cannot_be_used_are_errors_without_the_secret(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        ApiKeys.parse(text)
    assert "0123456789abcdef" not in str(raised.value)


def test_a_large_file_of_keys_is_refused_at_once(tmp_path: Path) -> None:
    text = "keys:\n" + "- {name: a, key: 0123456789abcdef, everything: true}\n" * 100_000
    (tmp_path / "keys.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match="longer than 1,000,000 bytes"):
        ApiKeys.load(tmp_path / "keys.yaml")


@pytest.fixture
def staff(connect: Connect, kb: KnowledgeBase) -> Any:
    """A client of a server with a key of one user, and one that names its users."""
    acme = Scope("acme", ["hr"])
    kb.share("hr/leave", allowed=["user:ann", "group:hr"], scope=acme)
    keys = ApiKeys.parse(
        f"keys: [{{name: ann, key: {SECRETS['acme']}, tenant_id: acme, principals: ['user:ann']}},"
        f" {{name: bob, key: {SECRETS['reader']}, tenant_id: acme, principals: []}},"
        f" {{name: web, key: {SECRETS['root']}, tenant_id: acme, names_principals: true,"
        " write: true}]"
    )
    return connect(keys=keys)


def found(client: Any, key: str, scope: dict[str, object] | None = None) -> int:
    """The number of documents that a search, the list and the passages of one agree on."""
    body = {"query": "annual leave", "scope": scope or {}}
    hits = client.post("/v1/search", json=body, headers=bearer(key)).json()["hits"]
    names = (scope or {}).get("principals", ())
    query = "&".join(f"principal={name}" for name in names)  # type: ignore[attr-defined]
    listed = client.get(f"/v1/documents?{query}", headers=bearer(key)).json()
    status = client.get(f"/v1/documents/hr/leave?{query}", headers=bearer(key)).status_code
    assert len(hits) == listed["total"]
    sees_leave = "hr/leave" in {each["document_id"] for each in listed["documents"]}
    assert status == (200 if sees_leave else 404)
    assert "user:ann" not in str(hits) + str(listed)
    return len(hits)


def test_a_key_sees_the_documents_of_its_principals(staff: Any) -> None:
    assert found(staff, "acme") == 2
    assert found(staff, "reader") == 1
    body = {"query": "leave", "scope": {"principals": ["user:ann"]}}
    assert staff.post("/v1/search", json=body, headers=bearer("reader")).status_code == 403
    filtered = {"filters": [{"key": "allowed", "operator": "any", "value": ["user:ann"]}]}
    body = {"query": "leave", "filters": filtered}
    assert staff.post("/v1/search", json=body, headers=bearer("acme")).status_code == 422


def test_a_key_that_names_the_principals_of_its_users_sees_nothing_more_without(staff: Any) -> None:
    assert found(staff, "root") == 1
    assert found(staff, "root", {"principals": ["group:hr", "user:carl"]}) == 2
    documents = [{"id": "new", "text": "leave", "allowed": ["group:it"]}]
    added = staff.post("/v1/documents", json={"documents": documents}, headers=bearer("root"))
    assert added.json()["added"] == 1
    assert found(staff, "root", {"principals": ["group:it"]}) == 2
    assert found(staff, "acme") == 2


def test_a_key_that_may_write_shares_the_documents_that_it_sees(staff: Any) -> None:
    path, root = "/v1/documents/new", bearer("root")
    body = {"documents": [{"id": "new", "text": "leave", "allowed": ["group:it"]}]}
    assert staff.post("/v1/documents", json=body, headers=root).json()["added"] == 1
    assert staff.patch(path, json={"allowed": None}, headers=root).status_code == 404
    named = {"allowed": ["user:eve"], "scope": {"principals": ["group:it"]}}
    assert staff.patch(path, json=named, headers=root).json() == {"shared": 1}
    assert staff.patch(path, json=named, headers=root).status_code == 404
    assert staff.patch(path, json={}, headers=root).status_code == 422
    assert found(staff, "root", {"principals": ["user:eve"]}) == 2


@cases("right", ["write", "names_principals"])
def test_a_key_of_one_user_neither_writes_nor_names_others(right: str) -> None:
    key = f"name: a, key: {SECRETS['acme']}, tenant_id: acme, principals: [b], {right}: true"
    with pytest.raises(ConfigurationError, match="has principals"):
        ApiKeys.parse(f"keys: [{{{key}}}]")
