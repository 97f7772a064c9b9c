"""The application: its page and its description in OpenAPI."""

import re
from pathlib import Path

import pytest

from tests.serve.conftest import CHROMIUM, Connect, dom_of


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


@pytest.mark.slow
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
