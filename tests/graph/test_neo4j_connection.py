"""Addresses of Neo4j, and servers that cannot be reached."""

import pytest

from llama_retrieval_ext.errors import StoreError, StoreUnavailableError
from llama_retrieval_ext.graph.neo4j import Neo4jGraph
from llama_retrieval_ext.graph.open import open_graph
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]


def test_credentials_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPH_USER", "me")
    monkeypatch.setenv("GRAPH_PASSWORD", "secret")
    query = "user_env=GRAPH_USER&password_env=GRAPH_PASSWORD&timeout_s=5"
    from llama_retrieval_ext.graph.neo4j_connection import Neo4jAddress  # noqa: PLC0415 - slow to import

    address = Neo4jAddress.parse(f"neo4js://db.example/safety?{query}")
    assert (address.uri, address.database) == ("neo4j+s://db.example:7687", "safety")
    assert address.auth() == ("me", "secret")
    assert "secret" not in repr(address)


@pytest.mark.slow
def test_an_unreachable_neo4j_is_an_error_that_says_so() -> None:
    graph = open_graph("bolt://127.0.0.1:1?timeout_s=1")
    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        graph.names(scope=None)
    graph.close()


@pytest.mark.slow
def test_a_reading_statement_cannot_write_to_neo4j(graph: Neo4jGraph) -> None:
    with pytest.raises(StoreError, match="refuses"):
        graph.read("CREATE (n:__Node__ {id: 'x'}) RETURN n", {})
    assert graph.read("MATCH (n) RETURN count(n) AS n", {}) == [{"n": 0}]
