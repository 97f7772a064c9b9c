"""URLs of Qdrant, keys that are never shown, and versions of servers."""

import pytest

from llama_retrieval_ext.errors import ConfigurationError, StoreUnavailableError
from llama_retrieval_ext.stores.qdrant.client import Version, parse_address
from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from llama_retrieval_ext.urls import Address
from tests.stores.qdrant.conftest import KEY

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("qdrant://db/kb", Address("kb", url="http://db:6333")),
        (
            "qdrants://db/kb?api_key_env=K&timeout_s=5&prefer_grpc=true",
            Address("kb", "https://db:6333", "", 5.0, {"api_key_env": "K", "prefer_grpc": "true"}),
        ),
        ("qdrant:./dir", Address("nodes", path="./dir")),
        ("qdrant:/var/lib/kb?collection=x", Address("x", path="/var/lib/kb")),
        ("qdrant::memory:", Address("nodes", path=":memory:")),
    ],
)
def test_a_url_names_a_server_or_a_folder_and_a_collection(url: str, expected: Address) -> None:
    assert parse_address(url) == expected


def test_a_timeout_of_a_part_of_a_second_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="whole number of seconds"):
        parse_address("qdrant://db/kb?timeout_s=0.5")


@pytest.mark.parametrize(
    "options", ["grpc_port=6334", "prefer_grpc=true&grpc_port=0", "prefer_grpc=yes"]
)
def test_options_of_grpc_that_would_be_ignored_are_refused(options: str) -> None:
    with pytest.raises(ConfigurationError, match=r"prefer_grpc(=| must be )true"):
        parse_address(f"qdrant://db/kb?{options}")


def test_the_key_reaches_the_server_and_nothing_that_is_shown(
    keyed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_QDRANT_KEY", KEY)
    with QdrantStore(f"{keyed_url}/kb?api_key_env=TEST_QDRANT_KEY") as store:
        assert store.count() == 0
        shown = [repr(store), str(store), store.model_dump_json(), str(vars(store))]
        shown.append(str(store.describe()))
    assert not any(KEY in text for text in shown)
    monkeypatch.setenv("WRONG_KEY", "wrong")
    for url in (f"{keyed_url}/kb", f"{keyed_url}/kb?api_key_env=WRONG_KEY"):
        with pytest.raises(StoreUnavailableError, match="refused the credentials") as caught:
            QdrantStore(url)
        assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("version", ["1.15.5", "0.11.2"])
def test_a_server_that_keeps_no_settings_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"must be 1\.16 or newer"):
        Version.of(version).check_server("db")


@pytest.mark.parametrize("version", ["1.16.0", "2.0.0", "unknown"])
def test_a_server_of_another_version_is_accepted(version: str) -> None:
    Version.of(version).check_server("db")
