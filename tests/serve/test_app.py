"""The application: its page and its description in OpenAPI."""

import re

from tests.serve.conftest import Connect


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


def test_openapi_lists_the_errors_of_each_route(connect: Connect) -> None:
    schema = connect().get("/openapi.json").json()
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            if path.startswith("/v1/"):
                expected = {"400", "401", "403", "404", "413", "503", "504"}
                assert expected <= operation["responses"].keys()
