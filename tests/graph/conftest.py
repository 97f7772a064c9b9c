"""An empty Neo4j."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from llama_retrieval_ext.graph.neo4j import Neo4jGraph


@pytest.fixture
def graph(neo4j_url: str) -> "Iterator[Neo4jGraph]":
    from llama_retrieval_ext.graph.neo4j import Neo4jGraph  # noqa: PLC0415 - needs the extra

    with Neo4jGraph.open(neo4j_url) as graph:
        drop_constraints(graph)
        graph.clear(scope=None)
        yield graph
        drop_constraints(graph)


def drop_constraints(graph: "Neo4jGraph") -> None:
    """Drop the constraints that LlamaIndex made."""
    for row in graph.read("SHOW CONSTRAINTS YIELD name", {}):
        if not row["name"].startswith("llama_retrieval"):
            graph.connection.write(f"DROP CONSTRAINT {row['name']}", {}).function()
