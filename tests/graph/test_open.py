"""Graphs are opened by URL, and found behind what a user has."""

from pathlib import Path

import pytest
from llama_index.core.graph_stores.simple_labelled import SimplePropertyGraphStore

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.embedded_store import EmbeddedPropertyGraphStore
from llama_retrieval_ext.graph.open import PropertyGraph, graph_of, open_graph
from tests.cases import cases


def test_a_directory_and_memory_open_by_url(tmp_path: Path) -> None:
    for url in (f"graph:{tmp_path}/new", "graph::memory:"):
        open_graph(url).close()
    assert (tmp_path / "new/graph.sqlite3").exists()


@pytest.mark.slow
@cases(
    ("url", "message"),
    [
        ("grpah:./dir", "Did you mean graph:"),
        ("neo4:x", "Did you mean neo4j:"),
        ("graph:", "is not the URL of a graph"),
        ("graph://host/x", "is not the URL of a graph"),
        ("neo4j://", "without a host"),
        ("neo4j://host?user=x", "has the options user"),
        ("neo4j://host:99999", "port"),
        ("bolt://host?user_env=NOT_SET_ANYWHERE&password_env=NOR_THIS", "NOT_SET_ANYWHERE"),
        ("bolt://host?timeout_s=0", "timeout_s"),
        (3, "named by a URL"),
    ],
)
def test_a_url_that_names_no_graph_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        open_graph(url)


@pytest.mark.slow
@cases("url", ["neo4j://me:hunter2@host", "neo:me:hunter2@host"])
def test_a_password_in_a_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_graph(url)
    assert "hunter2" not in str(caught.value)


def test_property_graph_stores_have_graph_backends() -> None:
    assert isinstance(graph_of(SimplePropertyGraphStore()), PropertyGraph)
    with EmbeddedPropertyGraphStore(":memory:") as store:
        assert graph_of(store) is store.graph
        assert graph_of(store.graph) is store.graph
    with pytest.raises(ConfigurationError, match="property graph store"):
        graph_of(7)  # type: ignore[arg-type]
