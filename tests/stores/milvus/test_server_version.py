"""Servers without keyword search are refused at open, before anything is made on them."""

import pytest
from pymilvus import MilvusClient

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.milvus.client import check_version, is_lite
from llama_retrieval_ext.stores.milvus.store import open_milvus
from tests.servers.given import collection_url


@pytest.mark.parametrize("version", ["v2.3.5-lite", "v2.4.23", "2.4-20240912-1a2b", "v1.1.0"])
def test_an_old_server_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"http://db:19530 is .*2\.5 or newer"):
        check_version(version, "http://db:19530")


@pytest.mark.parametrize(
    "version",
    [
        "v2.5.0",
        "v2.6.4",
        "2.5-20250318-8de5174e-amd64",
        "v10.0.0",
        "master-20260317-d221fce5",
        "Zilliz Cloud Vector Database(Compatible with Milvus 2.4)",
        "milvus_lite 2.4.1",
        "",
    ],
)
def test_a_newer_server_or_one_that_does_not_say_is_tried(version: str) -> None:
    check_version(version, "http://db:19530")


def test_lite_tells_its_name() -> None:
    assert is_lite("milvus_lite-3.2.2")
    assert not is_lite("v2.3.5-lite")


def test_an_old_server_is_refused_at_open(milvus_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MilvusClient, "get_server_version", lambda *_, **__: "v2.4.1")
    with pytest.raises(ConfigurationError, match=r"v2\.4\.1"):
        open_milvus(collection_url(milvus_url, "never_made"))
