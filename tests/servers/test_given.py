"""A user's own servers are taken as they are named, and missed with a word."""

import socket

import pytest

from tests.servers.given import collection_url, given_server, reachable

VARIABLE = "LLAMA_RETRIEVAL_MILVUS_URL"


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("http://127.0.0.1:19530", "milvus://127.0.0.1:19530"),
        ("milvus://db.example:1?token_env=KEY", "milvus://db.example:1?token_env=KEY"),
        ("", ""),
    ],
)
def test_a_server_is_named_by_http_or_by_our_scheme(
    monkeypatch: pytest.MonkeyPatch, named: str, expected: str
) -> None:
    monkeypatch.setenv(VARIABLE, named)
    assert given_server(VARIABLE, "milvus") == expected


@pytest.mark.parametrize("named", ["localhost:19530", "qdrant://localhost:1"])
def test_a_variable_that_names_no_server_fails_with_the_right_form(
    monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv(VARIABLE, named)
    with pytest.raises(pytest.fail.Exception, match=f"{VARIABLE}.*expected http://host:port"):
        given_server(VARIABLE, "milvus")


def test_a_server_that_is_not_reachable_fails_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"milvus://127.0.0.1:{listener.getsockname()[1]}"
        assert reachable(VARIABLE, url) == url
    with pytest.raises(pytest.fail.Exception, match=f"{VARIABLE}.*cannot be reached.*unset"):
        reachable(VARIABLE, f"{url}?closed")


def test_a_collection_stands_before_the_options() -> None:
    assert collection_url("milvus://host:1", "c") == "milvus://host:1/c"
    assert collection_url("milvus://host:1/?token_env=K", "c") == "milvus://host:1/c?token_env=K"
