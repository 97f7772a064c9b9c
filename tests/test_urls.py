"""Paths in URLs are checked where they are read."""

from collections.abc import Callable
from pathlib import Path

import pytest
from llama_index.core import MockEmbedding

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.open import open_graph
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.readers.files import read_documents
from llama_retrieval_ext.stores.open import open_store
from llama_retrieval_ext.urls import local_path

NOBODY = "~nobody-has-this-name"
OPENERS: list[Callable[[str], object]] = [
    lambda path: KnowledgeBase.open(f"embedded:{path}", embed_model=MockEmbedding(4)),
    lambda path: KnowledgeBase.remove(f"embedded:{path}"),
    lambda path: open_store(f"embedded:{path}"),
    lambda path: open_store(f"qdrant:{path}"),
    lambda path: open_store(f"milvus:{path}.db"),
    lambda path: open_graph(f"graph:{path}"),
    read_documents,
    local_path,
]


@pytest.mark.parametrize("path", [NOBODY, "nul\0byte"])
@pytest.mark.parametrize("opener", OPENERS)
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


@pytest.mark.parametrize("opener", [open_store, open_graph])
@pytest.mark.parametrize("url", ["postgres://me:pass/word@host/db", "pg://host/db?key=pass"])
def test_a_url_with_an_unknown_scheme_is_shown_without_its_password(
    opener: Callable[[str], object], url: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        opener(url)
    assert "pass" not in str(raised.value)
