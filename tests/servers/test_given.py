"""Servers of a user and of the tests: as they are named, once for all workers, and cleared."""

import json
import socket
import sys
from types import SimpleNamespace
from urllib.request import urlopen

import pytest

from tests.servers import once
from tests.servers.elasticsearch import URL_VARIABLE, elasticsearch_url
from tests.servers.given import collection_url, given_server, reachable
from tests.servers.with_elasticsearch import KB_URL_VARIABLE, main

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


def test_a_server_is_started_once_for_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def start() -> SimpleNamespace:
        started.append("")
        return SimpleNamespace(url=f"http://host:{len(started)}", stop=started.clear)

    def fail() -> SimpleNamespace:
        raise ValueError("no such user")

    monkeypatch.setitem(sys.modules, "some_server", SimpleNamespace(start=start))
    monkeypatch.setitem(sys.modules, "broken_server", SimpleNamespace(start=fail))
    monkeypatch.setenv(once._VARIABLE, "")
    once.Controller()
    for _ in range(2):  # a worker, and another, which remembers nothing
        once._of_the_controller.cache_clear()
        assert once.url_of("some_server") == "http://host:1"
        with pytest.raises(ConnectionError, match="ValueError: no such user"):
            once.url_of("broken_server")
    assert len(started) == 1


__all__ = ["elasticsearch_url"]

FILL = f"""
import os, sys
from llama_index.core import Document, MockEmbedding
from llama_retrieval_ext import KnowledgeBase

with KnowledgeBase.open(os.environ[{KB_URL_VARIABLE!r}], embed_model=MockEmbedding(4)) as kb:
    kb.add([Document(text="annual leave")], show_progress=False)
sys.exit(3)
"""


@pytest.mark.slow
def test_indices_that_a_command_makes_on_a_server_are_removed(
    elasticsearch_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, elasticsearch_url)
    assert main([sys.executable, "-c", FILL]) == 3
    with urlopen(f"{elasticsearch_url}/_cluster/health/switching-*") as answer:
        assert json.load(answer)["active_primary_shards"] == 0


def test_a_call_without_a_command_shows_the_usage() -> None:
    with pytest.raises(SystemExit, match=r"usage: .* COMMAND"):
        main([])
