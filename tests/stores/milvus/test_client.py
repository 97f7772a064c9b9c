"""URLs and versions of Milvus: what they mean, and which are refused."""

from pathlib import Path

import pytest
from pymilvus import MilvusClient

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.milvus.client import check_version, is_lite, parse_address, token_of
from llama_retrieval_ext.stores.milvus.store import open_milvus
from llama_retrieval_ext.urls import Address

pytestmark = pytest.mark.slow


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
    "url", ["milvus:./kb", "milvus:./no-such-folder/kb.db", "milvus://host/1a"]
)
def test_a_file_or_collection_that_milvus_would_refuse_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_address(url)


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


@pytest.mark.parametrize("version", ["v2.3.5-lite", "2.4-20240912-1a2b"])
def test_an_old_server_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"http://db:19530 is .*2\.5 or newer"):
        check_version(version, "http://db:19530")


@pytest.mark.parametrize(
    "version",
    [
        "v2.5.0",
        "2.5-20250318-8de5174e-amd64",
        "v10.0.0",
        "Zilliz Cloud Vector Database(Compatible with Milvus 2.4)",
    ],
)
def test_a_newer_server_or_one_of_unknown_version_is_accepted(version: str) -> None:
    check_version(version, "http://db:19530")


def test_milvus_lite_is_recognised_by_its_version() -> None:
    assert is_lite("milvus_lite-3.2.2")
    assert not is_lite("v2.3.5-lite")


def test_an_old_server_is_refused_at_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MilvusClient, "get_server_version", lambda *_, **__: "v2.4.1")
    with pytest.raises(ConfigurationError, match=r"v2\.4\.1"):
        open_milvus(f"milvus:{tmp_path}/kb.db")
