"""URLs of Elasticsearch, credentials, and errors of shards."""

import pytest

from llama_retrieval_ext.errors import ConfigurationError, StoreUnavailableError
from llama_retrieval_ext.stores.elasticsearch.client import (
    FORM,
    ClientConfig,
    ShardsMissingError,
    Transport,
    error_of_part,
)
from llama_retrieval_ext.stores.elasticsearch.store import open_elasticsearch
from llama_retrieval_ext.urls import Address

pytestmark = pytest.mark.slow


def _config(address: Address) -> ClientConfig:
    transport = Transport.of_address(address)
    transport.close()
    return transport.config


@pytest.mark.parametrize(
    ("url", "where", "index"),
    [
        ("elasticsearch://localhost/docs", "http://localhost:9200", "docs"),
        ("elasticsearchs://es.example/proxy/es/docs", "https://es.example:9200/proxy/es", "docs"),
        ("elasticsearch://[::1]:9201/docs-1.2_x", "http://[::1]:9201", "docs-1.2_x"),
    ],
)
def test_a_url_names_a_server_and_an_index(url: str, where: str, index: str) -> None:
    address = FORM.parse(url)
    assert (address.url, address.collection) == (where, index)


@pytest.mark.parametrize("index", ["", "_all", "*", "a,b", "Upper", "-a", "..", "a#b"])
def test_an_index_name_that_names_none_or_several_is_refused(index: str) -> None:
    with pytest.raises(ConfigurationError, match="index"):
        FORM.parse(f"elasticsearch://localhost/{index.replace('#', '%23')}")


def test_credentials_come_from_the_environment_and_are_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ES_USER", "elastic")
    monkeypatch.setenv("ES_PASSWORD", "hunter2")
    address = FORM.parse("elasticsearch://localhost/docs?user_env=ES_USER&password_env=ES_PASSWORD")
    config = _config(address)
    assert config.options == {"basic_auth": ("elastic", "hunter2")}
    assert "hunter2" not in f"{address!r} {config!r}"
    monkeypatch.setenv("ES_KEY", "hunter2")
    config = _config(FORM.parse("elasticsearch://localhost/docs?api_key_env=ES_KEY&timeout_s=5"))
    assert config.options == {"api_key": "hunter2"}
    assert config.timeout_s == 5.0
    for user in ("user_env=ES_USER&password_env=ES_PASSWORD", "user_env=ES_USER"):
        with pytest.raises(ConfigurationError, match="not both"):
            _config(FORM.parse(f"elasticsearch://h/d?api_key_env=ES_KEY&{user}"))


def test_a_server_that_is_not_there_cannot_be_opened() -> None:
    with pytest.raises(StoreUnavailableError, match=r"http://127\.0\.0\.1:9 cannot be reached"):
        open_elasticsearch("elasticsearch://127.0.0.1:9/docs")


@pytest.mark.parametrize("status", [404, 503])
def test_the_error_of_a_recovering_shard_is_recognised(status: int) -> None:
    reason = "CurrentState[RECOVERING] operations only allowed when shard state is one of [STARTED]"
    body = {"error": {"type": "illegal_index_shard_state_exception", "reason": reason}}
    assert isinstance(error_of_part(status, body, "an index"), ShardsMissingError)
