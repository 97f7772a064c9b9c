"""URLs of stores: the address that they name, and the location of a knowledge base."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import MockEmbedding

from llama_retrieval_ext import KnowledgeBase, open_store, read_documents
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph import open_graph
from llama_retrieval_ext.urls import Address, Location, UrlForm, local_path
from tests.cases import cases

FORM = UrlForm(
    engine="Qdrant",
    scheme="qdrant",
    example="qdrant://host/name",
    credentials="?user_env=NAME&password_env=NAME",
    options=["user_env", "password_env", "timeout_s"],
    local_options=["collection"],
    name_pattern="[a-z ]+",
    name_rule="lower-case letters",
)


@cases(
    ("url", "address"),
    [
        ("qdrant://db/kb", Address("kb", "http://db:6333")),
        ("qdrants://[::1]:443/a/b/my%20kb/", Address("my kb", "https://[::1]:443/a/b")),
        ("qdrant://db/kb?timeout_s=2.5", Address("kb", "http://db:6333", timeout_s=2.5)),
        ("qdrant:./dir?collection=kb", Address("kb", path="./dir")),
        ("qdrant:./dir", Address("nodes", path="./dir")),
    ],
)
def test_a_url_names_an_address(url: str, address: Address) -> None:
    assert dataclasses.replace(FORM.parse(url), timeout_s=address.timeout_s) == address
    if "timeout_s" in url:
        assert FORM.parse(url).timeout_s == address.timeout_s


@cases(
    ("url", "message"),
    [
        ("milvus://db/kb", "no URL of Qdrant"),
        ("qdrant:", "needs a host"),
        ("qdrants:./dir", "needs a host"),
        ("qdrant:///kb", "without host or collection"),
        ("qdrant://db", "without host or collection"),
        ("qdrant://db:99999/kb", "port"),
        ("qdrant://[::1/kb", "host"),
        ("qdrant://me:hunter2@d℀b/kb", "host"),
        ("qdrant://db/kb?colour=red", "has the options colour; it may have password_env"),
        ("qdrant://db/kb?timeout_s=0", "timeout_s must be a positive number"),
        ("qdrant://db/KB1", "got the collection name 'KB1'; it has lower-case letters"),
        ("qdrant://hunter2@db/kb", "must not hold credentials"),
    ],
)
def test_a_url_of_another_form_is_refused_without_repeating_a_password(
    url: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        FORM.parse(url)
    assert "hunter2" not in str(caught.value)


def test_secrets_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_USER", "ann")
    monkeypatch.delenv("TEST_PASSWORD", raising=False)
    address = FORM.parse("qdrant://db/kb?user_env=TEST_USER&password_env=TEST_PASSWORD")
    assert address.secrets("user_env") == ["ann"]
    assert address.secrets("api_key_env") == []
    with pytest.raises(ConfigurationError, match="'TEST_PASSWORD', which is not set"):
        address.secrets("user_env", "password_env")


@cases(
    ("one", "other", "is_same"),
    [
        ("qdrant://db/kb", "qdrants://db:6333/kb?timeout_s=3", True),
        ("qdrant://db/kb", "qdrant://db/other", False),
        ("milvus://db/kb?db_name=a", "milvus://db/kb?db_name=b", False),
        ("embedded:./kb", "embedded:../tests/../tests/kb", False),
        ("embedded:./kb", "embedded:./x/../kb", True),
    ],
)
def test_urls_of_one_location_have_one_identity(one: str, other: str, *, is_same: bool) -> None:
    assert (Location.of(one).identity == Location.of(other).identity) is is_same


@cases("url", ["embedded::memory:", "qdrant::memory:"])
def test_a_location_in_memory_has_no_identity(url: str) -> None:
    location = Location.of(url)
    assert (location.identity, location.path, location.is_in_memory) == (None, None, True)


NOBODY = "~nobody-has-this-name"
OPENERS: list[Any] = [
    lambda path: KnowledgeBase.open(f"embedded:{path}", embed_model=MockEmbedding(4)),
    lambda path: KnowledgeBase.remove(f"embedded:{path}"),
    lambda path: open_store(f"embedded:{path}"),
    lambda path: open_store(f"qdrant:{path}"),
    lambda path: open_store(f"milvus:{path}.db"),
    lambda path: open_graph(f"graph:{path}"),
    read_documents,
    local_path,
]


@pytest.mark.slow
@cases("path", [NOBODY, "nul\0byte"])
@cases("opener", OPENERS)
def test_a_path_that_cannot_be_one_is_a_configuration_error(
    opener: Callable[[str], object], path: str
) -> None:
    with pytest.raises(ConfigurationError):
        opener(path)


def test_a_loop_of_symbolic_links_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ConfigurationError, match="loop"):
        KnowledgeBase.open(f"embedded:{tmp_path / 'loop'}", embed_model=MockEmbedding(4))


def test_the_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_path("~/kb") == tmp_path.resolve() / "kb"


@cases("opener", [open_store, open_graph])
@cases("url", ["postgres://me:pass/word@host/db", "pg://host/db?key=pass"])
def test_a_url_with_an_unknown_scheme_is_shown_without_its_password(
    opener: Callable[[str], object], url: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        opener(url)
    assert "pass" not in str(raised.value)
