"""Expansion by hops on a graph in memory; `testing/graph_contract` has the rest for each engine."""

import asyncio

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.elements import Edge
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.expansion import aexpand, expand


def test_an_expansion_lists_nodes_by_distance_with_their_paths() -> None:
    with EmbeddedGraph(":memory:") as graph:
        graph.upsert([], [Edge("a", "R", "b"), Edge("c", "R", "b"), Edge("c", "R", "d")])
        found = expand(graph, ["a"], max_hops=2)
        assert found.distances == {"a": 0, "b": 1, "c": 2}
        assert str(found.path("c")) == "a -R-> b <-R- c"
        assert "d" not in found
        assert list(expand(graph, ["a"], max_hops=2, limit=2)) == ["a", "b"]
        with pytest.raises(KeyError):
            found.path("d")
        assert asyncio.run(aexpand(graph, ["a"], max_hops=2)).distances == found.distances
        with pytest.raises(ConfigurationError, match="max_hops"):
            expand(graph, ["a"], max_hops=-1)
