"""Expansion by hops on a graph in memory; `testing/graph_contract` has the rest for each engine."""

import asyncio
from collections.abc import Sequence

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.backend import ANY_HOP
from llama_retrieval_ext.graph.elements import Edge, GraphNode, Hop
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.expansion import aexpand, expand, expand_each
from llama_retrieval_ext.scope import Scope


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


class RecordingGraph(EmbeddedGraph):
    """A graph that records the ids of each request."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.requests: list[list[str]] = []

    def plan_nodes(
        self, ids: Sequence[str], *, scope: Scope | None = None
    ) -> Call[dict[str, GraphNode]]:
        self.requests.append([*ids])
        return super().plan_nodes(ids, scope=scope)

    def plan_neighbours(
        self, frontier: Sequence[str], hop: Hop = ANY_HOP, *, scope: Scope | None = None
    ) -> Call[dict[str, list[Edge]]]:
        self.requests.append([*frontier])
        return super().plan_neighbours(frontier, hop, scope=scope)


def test_an_expansion_of_each_seed_requests_the_edges_and_the_content_of_a_node_once() -> None:
    with RecordingGraph() as graph:
        graph.upsert([], [Edge("a", "R", "b"), Edge("b", "R", "c")])
        plan = expand_each(
            graph,
            ["a", "b", "nobody"],
            max_hops=4,
            hop=Hop(),
            limit=10,
            scope=None,
            passable=lambda node: node.id != "c",
        )
        found = {seed: own.distances for seed, own in run(plan).items()}
        assert found == {"a": {"a": 0, "b": 1}, "b": {"b": 0, "a": 1}}
        assert graph.requests == [["a", "b", "nobody"], ["a", "b", "c"]]
