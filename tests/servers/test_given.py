"""A user's own servers are taken as they are named, and missed with a word."""

import socket

import pytest

from tests.servers.given import collection_url, given_hosts, given_server, local_port, reachable

VARIABLE = "LLAMA_RETRIEVAL_MILVUS_URL"


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("http://127.0.0.1:19530", "milvus://127.0.0.1:19530"),
        ("https://db.example:443", "milvuss://db.example:443"),
        ("milvus://db.example:1?token_env=KEY", "milvus://db.example:1?token_env=KEY"),
        ("", ""),
    ],
)
def test_a_server_is_named_by_http_or_by_our_scheme(
    monkeypatch: pytest.MonkeyPatch, named: str, expected: str
) -> None:
    monkeypatch.setenv(VARIABLE, named)
    assert given_server(VARIABLE, "milvus") == expected


@pytest.mark.parametrize("named", ["localhost:19530", "http://localhost", "qdrant://localhost:1"])
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


def test_tests_may_talk_to_the_hosts_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "http://db.example:19530")
    assert "db.example" in given_hosts()


def test_a_collection_stands_before_the_options() -> None:
    assert collection_url("milvus://host:1", "c") == "milvus://host:1/c"
    assert collection_url("milvus://host:1/?token_env=K", "c") == "milvus://host:1/c?token_env=K"


def test_only_a_plain_server_of_this_machine_has_a_local_port() -> None:
    assert local_port("http://127.0.0.1:9200") == 9200
    assert local_port("milvus://localhost:19530") == 19530
    assert local_port("milvuss://localhost:19530") is None
    assert local_port("http://db.example:9200") is None
