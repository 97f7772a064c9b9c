"""The application: its page, its description in OpenAPI, and what it is not made with."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_retrieval_ext.errors import (
    ConfigurationError,
    MissingDependencyError,
    ScopeRequiredError,
)
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.serve import ApiKeys, create_app, create_mcp_server, serve_mcp
from tests.serve.conftest import ACME, CHROMIUM, KEYS, Connect, dom_of

pytestmark = pytest.mark.slow


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


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium")
@pytest.mark.parametrize(("key", "said"), [("", ""), ("wrong", "the server does not know this")])
def test_the_page_says_that_a_key_is_wrong(
    connect: Connect, tmp_path: Path, key: str, said: str
) -> None:
    typed = f'by("key").value = "{key}"; by("key").dispatchEvent(new Event("change"));'
    refuse = "<script>window.fetch = async () => new Response('{}', {status: 401})</script>"
    page = connect().get("/").text.replace("<script nonce", f"{refuse}<script nonce")
    (tmp_path / "page.html").write_text(f"{page}<script>{typed}</script>", encoding="utf-8")
    shown = dom_of((tmp_path / "page.html").as_uri(), tmp_path)
    status = re.search(r'<p id="status"[^>]*>(.*?)</p>', shown)
    assert status is not None
    assert status[1].startswith(said)
    assert bool(status[1]) == bool(said)
    assert '<label id="key-field">' in shown


def test_openapi_describes_each_route_with_examples_errors_and_the_key(connect: Connect) -> None:
    schema = connect().get("/openapi.json").json()
    methods = {(path, method) for path, each in schema["paths"].items() for method in each}
    assert {("/v1/documents/{document_id}", "delete"), ("/v1/stream", "post")} <= methods
    for path, each in schema["paths"].items():
        for operation in each.values():
            assert operation["description"]
            assert ("security" in operation) == path.startswith("/v1/")
            if path.startswith("/v1/"):
                errors = {"400", "401", "403", "404", "413", "503", "504"}
                assert errors <= operation["responses"].keys()
    for name in ("SearchRequest", "AddRequest"):
        assert schema["components"]["schemas"][name]["examples"]
    for path, method in (
        ("/v1/search", "post"),
        ("/v1/documents", "post"),
        ("/v1/documents", "get"),
    ):
        content = schema["paths"][path][method]["responses"]["200"]["content"]
        assert content["application/json"]["example"]


def test_an_mcp_server_without_a_scope_or_with_unsafe_options_is_refused(kb: KnowledgeBase) -> None:
    with pytest.raises(ScopeRequiredError):
        create_mcp_server(kb)
    with pytest.raises(ConfigurationError, match="rules are for a graph"):
        create_mcp_server(kb, scope=ACME, rules="rules.yaml")
    with pytest.raises(ConfigurationError, match="without API keys"):
        serve_mcp(kb, scope=ACME, address=("0.0.0.0", 8001))
    with pytest.raises(ConfigurationError, match="keys are for HTTP"):
        serve_mcp(kb, scope=ACME, keys=ApiKeys.parse(KEYS))


@pytest.mark.parametrize(
    ("function", "package", "extra"),
    [(create_app, "fastapi", "serve"), (create_mcp_server, "mcp", "mcp")],
)
def test_a_missing_extra_is_named(
    kb: KnowledgeBase,
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[..., object],
    package: str,
    extra: str,
) -> None:
    for name in [*sys.modules]:
        if name.startswith("llama_retrieval_ext.serve.") or name.split(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError) as raised:
        function(kb, scope=ACME)
    assert raised.value.extra == extra
