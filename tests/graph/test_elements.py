"""Nodes and edges of graphs as values."""

from typing import Any

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode, Partition
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.neo4j_rows import batch_rows
from llama_retrieval_ext.scope import Scope
from tests.cases import cases


@cases(
    "node",
    [
        GraphNode("pit", "Process", "deep pit", {"aliases": ["pit"]}),
        GraphNode("pit", "Process"),
        GraphNode("p1", "text_chunk", "", {"tenant_id": "acme"}, "Pits need shoring."),
    ],
)
def test_a_node_is_the_same_after_a_round_trip_through_llama_index(node: GraphNode) -> None:
    assert GraphNode.from_llama_index(node.to_llama_index()) == node


def test_an_edge_is_the_same_after_a_round_trip_through_llama_index() -> None:
    edge = Edge.of("pit", "USES", "crane", {"weight": 2, "tenant_id": "acme"})
    assert Edge.from_llama_index(edge.to_llama_index()) == edge
    assert (edge.other("pit"), edge.other("crane")) == ("crane", "pit")


@cases("weight", [0, -1, "2", True, None])
def test_a_weight_that_is_no_positive_number_counts_as_1(weight: object) -> None:
    assert Edge.of("a", "R", "b", {"weight": weight}).weight == 1.0


@cases("value", [object(), float("nan")])
def test_properties_that_json_cannot_hold_are_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="must be JSON values"):
        Edge.of("a", "R", "b", {"x": value})


def test_a_scope_sees_its_own_partitions() -> None:
    row = Partition("acme", "hr")
    assert row.is_in(None)
    assert row.is_in(Scope("acme", kb_ids=["hr", "it"]))
    assert not row.is_in(Scope("acme", kb_ids=["it"]))
    assert not row.is_in(Scope("globex"))
    assert not Partition().is_in(Scope("acme"))


@cases(
    ("arguments", "message"),
    [
        ({"id": ""}, "a node needs a non-empty id, got ''"),
        ({"id": 5}, "non-empty id, got 5"),
        ({"id": "a", "label": None}, "non-empty label, got None"),
        ({"id": "a", "properties": 3}, "the properties of a node must be of type Mapping, got 3"),
    ],
)
def test_a_node_without_an_id_or_label_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        GraphNode(**arguments)


@cases(
    ("rows", "message"),
    [
        (([{"id": "x"}], []), "one of the nodes must be of type GraphNode, got {'id': 'x'}"),
        ((GraphNode("x"), []), "nodes must be of type Iterable"),
        (([], [("x", "NEAR", "y")]), r"of type Edge, got .*; write \[Edge.of\("),
        (([], [Edge("x", "", "y")]), "an edge needs a non-empty type, got ''"),
        (([GraphNode("x", properties={"of": object()})], []), "must be JSON values"),
    ],
)
def test_what_is_no_node_or_edge_is_not_written(rows: Any, message: str) -> None:
    with EmbeddedGraph(":memory:") as graph:
        with pytest.raises(ConfigurationError, match=message):
            graph.upsert(*rows)
        assert graph.nodes(["x", "y"]) == {}
    with pytest.raises(ConfigurationError, match=message):
        batch_rows({"": Contents.of(*rows)})  # for Neo4j


def test_aliases_that_are_no_names_are_ignored() -> None:
    assert GraphNode("a", properties={"aliases": 3}).names == ("a",)
    assert GraphNode("a", properties={"aliases": "b"}).names == ("a", "b")
