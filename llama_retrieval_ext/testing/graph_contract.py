"""`GraphContract`: requirements for every graph backend, as tests to inherit."""
# ruff: noqa: D102 - the names of the tests say what they say

import asyncio
from dataclasses import replace
from typing import TypeVar

from llama_retrieval_ext.errors import ConfigurationError, StoreClosedError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.backend import GraphBackend, WritableGraph
from llama_retrieval_ext.graph.elements import Contents, Direction, Edge, GraphNode, Hop
from llama_retrieval_ext.graph.expansion import expand
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.with_pytest import pytest

T = TypeVar("T")

ACME, GLOBEX = {"tenant_id": "acme"}, {"tenant_id": "globex"}
SCOPE = Scope("acme")


def sample_graph() -> tuple[list[GraphNode], list[Edge]]:
    """Return a small graph of two tenants, with a cycle, a loop, parallel edges and a passage."""
    nodes = [
        GraphNode("pit", "Process", "Pit excavation", {**ACME, "aliases": ["pit dig"], "depth": 6}),
        GraphNode("collapse", "Hazard", "Collapse", {**ACME, "level": 3}),
        GraphNode("shoring", "Measure", "Shoring", ACME),
        GraphNode("crane", "Equipment", "Crane", ACME),
        GraphNode("p1", "text_chunk", "", {**ACME, "ref_doc_id": "law"}, text="Pits need shoring."),
        GraphNode("alone", "Hazard", "Alone", ACME),
        GraphNode("spy", "Hazard", "Spy", GLOBEX),
    ]
    edges = [
        Edge.of("pit", "HAS", "collapse", {**ACME, "weight": 2.0}),
        Edge.of("pit", "USES", "crane", ACME),
        Edge.of("crane", "CAUSES", "collapse", ACME),
        Edge.of("shoring", "MITIGATES", "collapse", ACME),
        Edge.of("collapse", "AT", "pit", ACME),
        Edge.of("crane", "NEAR", "crane", ACME),
        Edge.of("p1", "MENTIONS", "shoring", ACME),
        Edge.of("spy", "NEAR", "spy", GLOBEX),
    ]
    return nodes, edges


class GraphContract:
    """Tests of a graph backend: subclass it with a fixture ``graph`` over `sample_graph`.

    ::

        class TestMyGraph(GraphContract):
            @pytest.fixture
            def graph(self):
                return MyGraph(*sample_graph())
    """

    @pytest.fixture
    def graph(self) -> GraphBackend:
        """Return the backend under test; every subclass overrides it."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named graph")

    def test_nodes_come_back_as_they_were_written(self, graph: GraphBackend) -> None:
        written = {node.id: node for node in sample_graph()[0]}
        nodes = answer(graph.plan_nodes(["p1", "pit", "nobody"], scope=SCOPE))
        assert list(nodes) == ["p1", "pit"]
        for node in nodes.values():
            assert node.text == written[node.id].text
            assert node.label == written[node.id].label
            assert written[node.id].properties.items() <= dict(node.properties).items()
        assert nodes["pit"].names == ("Pit excavation", "pit dig")

    def test_no_ids_are_no_nodes(self, graph: GraphBackend) -> None:
        assert answer(graph.plan_nodes([], scope=None)) == {}
        assert answer(graph.plan_neighbours([], Hop(), scope=None)) == {}

    def test_edges_come_heaviest_first_then_by_the_other_end(self, graph: GraphBackend) -> None:
        edges = answer(graph.plan_neighbours(["pit"], Hop(), scope=SCOPE))["pit"]
        assert [edge.id for edge in edges] == [
            ("pit", "HAS", "collapse"),
            ("collapse", "AT", "pit"),
            ("pit", "USES", "crane"),
        ]
        assert edges[0].weight == edges[0].properties["weight"] == 2.0

    def test_a_loop_is_one_edge(self, graph: GraphBackend) -> None:
        hop = Hop(types=frozenset({"NEAR"}))
        assert len(answer(graph.plan_neighbours(["crane"], hop, scope=SCOPE))["crane"]) == 1

    @pytest.mark.parametrize(
        ("hop", "others"),
        [
            (Hop(Direction.OUT), ["collapse", "crane"]),
            (Hop(Direction.IN), ["collapse"]),
            (Hop(types=frozenset({"USES"})), ["crane"]),
            (Hop(fan_out=1), ["collapse"]),
            (Hop(types=frozenset()), []),
        ],
    )
    def test_a_hop_follows_what_it_says(
        self, graph: GraphBackend, hop: Hop, others: list[str]
    ) -> None:
        edges = answer(graph.plan_neighbours(["pit"], hop, scope=SCOPE))["pit"]
        assert [edge.other("pit") for edge in edges] == others

    def test_nodes_without_edges_are_known_and_unseen_nodes_are_not(
        self, graph: GraphBackend
    ) -> None:
        neighbours = answer(graph.plan_neighbours(["alone", "spy", "nobody"], Hop(), scope=SCOPE))
        assert neighbours == {"alone": []}

    def test_contents_are_all_nodes_and_edges_in_scope(self, graph: GraphBackend) -> None:
        nodes, edges = answer(graph.plan_contents(scope=SCOPE))
        written, links = sample_graph()
        expected = {node.id: node.text for node in written if node.partition.tenant_id == "acme"}
        assert {node.id: node.text for node in nodes} == expected
        assert len(nodes) == len(expected)
        edge_ids = {edge.id for edge in links if edge.source in expected}
        assert {edge.id for edge in edges} == edge_ids
        assert len(answer(graph.plan_contents(scope=None)).nodes) == len(written)
        nodes, edges = answer(graph.plan_contents(["spy", "pit", "collapse"], scope=SCOPE))
        assert {node.id for node in nodes} == {"pit", "collapse"}
        assert {edge.type for edge in edges} == {"HAS", "AT"}

    def test_names_are_those_of_entities_in_scope(self, graph: GraphBackend) -> None:
        names = answer(graph.plan_names(scope=SCOPE))
        assert names == sorted(names)
        assert ("pit dig", "pit") in names
        assert not {"p1", "spy"} & {id_ for _, id_ in names}
        assert ("Spy", "spy") in answer(graph.plan_names(scope=None))

    def test_distances_are_exact_and_paths_lead_back_to_a_seed(self, graph: GraphBackend) -> None:
        reached = expand(graph, ["pit"], max_hops=3, limit=100, scope=SCOPE)
        expected = {"pit": 0, "collapse": 1, "crane": 1, "shoring": 2, "p1": 3}
        assert reached.distances == expected
        assert str(reached.path("p1")) == (
            "pit -HAS-> collapse <-MITIGATES- shoring <-MENTIONS- p1"
        )


def answer(request: Call[T]) -> T:
    """Return the result of a request; check that its coroutine gives the same."""
    result = request.function()
    if request.coroutine is not None:

        async def awaited() -> T:
            assert request.coroutine is not None
            return await request.coroutine()

        assert asyncio.run(awaited()) == result
    return result


class WritableGraphContract(GraphContract):
    """Additional tests of a writable graph backend."""

    @pytest.fixture
    def graph(self) -> WritableGraph:
        """Return the backend under test; every subclass overrides it."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named graph")

    def test_writing_again_changes_nothing(self, graph: WritableGraph) -> None:
        before = everything(graph)
        graph.upsert(*sample_graph())
        assert everything(graph) == before

    def test_writing_again_replaces_properties(self, graph: WritableGraph) -> None:
        graph.upsert(
            [GraphNode("pit", "Site", "Pit", {**ACME, "nested": {"a": [1]}})],
            [Edge.of("pit", "USES", "crane", {**ACME, "since": 2020})],
        )
        node = answer(graph.plan_nodes(["pit"], scope=SCOPE))["pit"]
        assert (node.label, node.names) == ("Site", ("Pit",))
        assert dict(node.properties) == {**ACME, "nested": {"a": [1]}}
        hop = Hop(types=frozenset({"USES"}))
        (edge,) = answer(graph.plan_neighbours(["pit"], hop, scope=SCOPE))["pit"]
        assert edge.properties == {**ACME, "since": 2020}

    @pytest.mark.parametrize(
        "value", [[1, "a", True], [1, None], [], {"a": [1, {"b": None}]}, [["a"]], 1.5], ids=repr
    )
    def test_values_of_properties_come_back_as_they_were_written(
        self, graph: WritableGraph, value: object
    ) -> None:
        properties = {**ACME, "value": value}
        written = {**properties, "none": None}
        graph.upsert([GraphNode("new", "Site", "New", written)], [])
        graph.upsert([], [Edge.of("new", "USES", "crane", written)])
        assert answer(graph.plan_nodes(["new"], scope=SCOPE))["new"].properties == properties
        (edge,) = answer(graph.plan_neighbours(["new"], Hop(), scope=SCOPE))["new"]
        assert edge.properties == properties

    def test_an_edge_whose_weight_is_no_property_is_refused(self, graph: WritableGraph) -> None:
        with pytest.raises(ConfigurationError, match=r"Edge.of\(..., {'weight': 2.5}\)"):
            graph.upsert([], [Edge("left", "NEAR", "right", 2.5)])
        assert answer(graph.plan_nodes(["left"], scope=None)) == {}

    def test_an_end_that_is_no_node_becomes_an_entity_in_the_edge_s_tenant(
        self, graph: WritableGraph
    ) -> None:
        graph.upsert([], [Edge.of("new", "NEAR", "pit", ACME)])
        assert answer(graph.plan_nodes(["new"], scope=SCOPE))["new"].names == ("new",)
        assert answer(graph.plan_nodes(["new"], scope=Scope("globex"))) == {}

    def test_a_row_stays_until_its_last_source_is_deleted(self, graph: WritableGraph) -> None:
        node, edge = GraphNode("x", properties=ACME), Edge.of("x", "NEAR", "y", ACME)
        for source in ("first", "second"):
            graph.upsert([node], [edge], source=source)
        graph.delete_sources(["first"], scope=SCOPE)
        assert [e.id for e in answer(graph.plan_neighbours(["x"], Hop(), scope=SCOPE))["x"]] == [
            edge.id
        ]
        graph.delete_sources(["second"], scope=Scope("globex"))
        assert len(answer(graph.plan_nodes(["x", "y"], scope=SCOPE))) == 2
        graph.delete_sources(["second"], scope=SCOPE)
        assert answer(graph.plan_nodes(["x", "y"], scope=SCOPE)) == {}

    def test_what_a_document_says_is_replaced_as_a_whole(self, graph: WritableGraph) -> None:
        before = everything(graph)

        def contents(document: str, *entities: str) -> Contents:
            edges = [Edge.of(document, "MENTIONS", entity, ACME) for entity in entities]
            return Contents([GraphNode(document, "text_chunk", properties=ACME, text="t")], edges)

        first = {"1": contents("d1", "pit", "new", "old"), "2": contents("d2", "new")}
        for _ in range(2):
            graph.replace_sources(first)
        nodes, edges = answer(graph.plan_claims_of(["1", "none"]))["1"]
        assert {node.id for node in nodes} == {"d1"}  # the others it only names
        assert {edge.target for edge in edges} == {"pit", "new", "old"}
        graph.replace_sources({"1": contents("d1", "newer")})
        named = {id_ for _, id_ in answer(graph.plan_names(scope=SCOPE))}
        assert {"new", "newer", "pit"} <= named
        assert "old" not in named
        assert answer(graph.plan_claims_of(["1"]))["1"].edges == [
            Edge.of("d1", "MENTIONS", "newer", ACME)
        ]
        graph.replace_sources({"1": contents("another first node")})
        assert answer(graph.plan_nodes(["d1", "newer"], scope=SCOPE)) == {}
        graph.replace_sources({"1": Contents([], []), "2": contents("d2", "new")})
        assert answer(graph.plan_nodes(["another first node"], scope=SCOPE)) == {}
        graph.delete_sources(["1", "2"], scope=None)
        assert everything(graph) == before
        graph.compact()
        assert everything(graph) == before

    def test_tenants_with_the_same_ids_do_not_meet(self, graph: WritableGraph) -> None:
        before = everything(graph)
        nodes, edges = sample_graph()
        graph.upsert(
            [replace(n, label="Other", properties={**n.properties, **GLOBEX}) for n in nodes],
            [Edge.of(*e.id, {**e.properties, **GLOBEX, "weight": 9}) for e in edges]
            + [Edge.of("alone", "NEAR", "pit", GLOBEX)],
        )
        assert everything(graph) == before
        graph.clear(scope=Scope("globex"))
        assert everything(graph) == before
        assert answer(graph.plan_names(scope=Scope("globex"))) == []

    def test_the_last_of_equal_rows_of_a_document_is_what_it_says(
        self, graph: WritableGraph
    ) -> None:
        nodes = [GraphNode("new", name=name, properties=ACME) for name in ("First", "Last")]
        edges = [Edge.of("new", "NEAR", "pit", {**ACME, "of": name}) for name in ("First", "Last")]
        graph.replace_sources({"d": Contents(nodes, edges)})
        contents = answer(graph.plan_claims_of(["d"]))["d"]
        assert [node.name for node in contents.nodes] == ["Last"]
        assert [edge.properties["of"] for edge in contents.edges] == ["Last"]

    def test_knowledge_bases_meet_where_a_scope_sees_both(self, graph: WritableGraph) -> None:
        for kb_id, other in (("b", "right"), ("a", "left")):
            properties = {**ACME, "kb_id": kb_id}
            edges = [Edge.of("shared", "NEAR", end, properties) for end in (other, "same")]
            graph.upsert([], edges)
        both, one = Scope("acme", ["a", "b"]), Scope("acme", ["a"])
        (edge,) = answer(graph.plan_neighbours(["same"], Hop(), scope=both))["same"]
        assert edge.properties["kb_id"] == "a"  # the first by name
        assert set(expand(graph, ["left"], max_hops=2, scope=both)) == {
            *("left", "shared", "right", "same")
        }
        assert set(expand(graph, ["left"], max_hops=2, scope=one)) == {"left", "shared", "same"}

    def test_the_version_changes_with_every_write(self, graph: WritableGraph) -> None:
        before = graph.version
        graph.upsert([GraphNode("x")], [])
        assert graph.version != before

    def test_a_closed_graph_says_so(self, graph: WritableGraph) -> None:
        graph.close()
        graph.close()
        with pytest.raises(StoreClosedError, match="open it again"):
            graph.nodes(["pit"], scope=None)


def everything(graph: GraphBackend) -> tuple[list[GraphNode], list[Edge], list[tuple[str, str]]]:
    """Return all nodes, edges and names that one tenant sees."""
    ids = [node.id for node in sample_graph()[0]]
    nodes = graph.nodes(ids, scope=SCOPE)
    edges = graph.contents(scope=SCOPE).edges
    return list(nodes.values()), sorted(edges), graph.names(scope=SCOPE)
