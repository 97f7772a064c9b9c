"""Nodes and edges of graphs as values."""

from typing import Any

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.elements import Edge, GraphNode, Partition
from llama_retrieval_ext.query import Scope


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("weight", [0, -1, "2", True, None])
def test_a_weight_that_is_no_positive_number_counts_as_1(weight: object) -> None:
    assert Edge.of("a", "R", "b", {"weight": weight}).weight == 1.0


@pytest.mark.parametrize("value", [object(), float("nan")])
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


@pytest.mark.parametrize(
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


def test_aliases_that_are_no_names_are_ignored() -> None:
    assert GraphNode("a", properties={"aliases": 3}).names == ("a",)
    assert GraphNode("a", properties={"aliases": "b"}).names == ("a", "b")
