"""URLs of Milvus, and what they refuse."""

from pathlib import Path

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.milvus.client import parse_address, token_of
from llama_retrieval_ext.urls import Address


def test_a_server_has_host_port_and_collection() -> None:
    assert parse_address("milvus://db:1234/kb") == Address("kb", url="http://db:1234", timeout_s=10)
    assert parse_address("milvuss://db/kb") == Address("kb", url="https://db:19530", timeout_s=10)
    assert parse_address("milvus://[::1]/kb?db_name=x&timeout_s=2.5") == Address(
        "kb", url="http://[::1]:19530", timeout_s=2.5, options={"db_name": "x"}
    )


def test_a_file_has_a_collection(tmp_path: Path) -> None:
    path = (tmp_path / "a b.db").resolve()
    assert parse_address(f"milvus:{tmp_path}/a%20b.db") == Address(
        "nodes", path=str(path), timeout_s=10
    )
    assert parse_address(f"milvus:{path}?collection=kb").collection == "kb"


@pytest.mark.parametrize(
    "url",
    [
        "milvus:",
        "milvus:?collection=kb",
        "milvus:./kb",
        "milvus:./no-such-folder/kb.db",
        "milvus:./kb.db?token_env=X",
        "milvus:./kb.db?collection=a-b",
        "milvus://",
        "milvus://host",
        "milvus://host:port/kb",
        "milvus://host/a/b",
        "milvus://host/1a",
        "milvus://host/kb?token=hidden",
        "milvus://host/kb?timeout_s=0",
        "milvus://host/kb?timeout_s=soon",
        "milvuss:./kb.db",
        "qdrant://host/kb",
    ],
)
def test_what_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_address(url)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="environment variable") as caught:
        parse_address("milvus://root:hidden@host/kb")
    assert "hidden" not in str(caught.value)


def test_credentials_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    by_token = parse_address("milvus://host/kb?token_env=MILVUS_TOKEN")
    with pytest.raises(ConfigurationError, match="MILVUS_TOKEN"):
        token_of(by_token)
    monkeypatch.setenv("MILVUS_TOKEN", "hidden")
    monkeypatch.setenv("MILVUS_USER", "root")
    assert token_of(by_token) == "hidden"
    assert "hidden" not in repr(by_token)
    by_user = parse_address("milvus://host/kb?user_env=MILVUS_USER&password_env=MILVUS_TOKEN")
    assert token_of(by_user) == "root:hidden"
    assert token_of(parse_address("milvus://host/kb")) == ""
