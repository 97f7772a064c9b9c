"""What every writable graph keeps to about the principals who may see its rows."""

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.backend import WritableGraph
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode, Hop
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.testing.graph_contract import ACME, answer, sample_graph


class GraphPermissions:
    """Tests to inherit beside `WritableGraphContract`."""

    def test_a_row_is_visible_through_a_visible_document_that_supports_it(
        self, graph: WritableGraph
    ) -> None:
        random = Random(5)
        groups, said = [f"group:{number}" for number in range(4)], dict[str, list[str]]()
        links: dict[str, set[str]] = {}
        for _ in range(25):
            document = f"d{random.randrange(6)}"
            if document in said and random.random() < 0.3:
                graph.delete_sources([document], scope=None)
                del said[document]
            else:
                said[document] = random.sample(groups, random.randrange(3))
                links[document] = set(random.sample("abcde", 2))
                graph.replace_sources({document: _about(document, links[document], said[document])})
            principals = random.sample(groups, 2)
            visible = [d for d, own in said.items() if not own or set(own) & set(principals)]
            self._check_visible(graph, principals, {d: links[d] for d in visible})

    def _check_visible(
        self, graph: WritableGraph, principals: Sequence[str], visible: Mapping[str, set[str]]
    ) -> None:
        scope = Scope("acme", principals=principals)
        nodes, edges = answer(graph.plan_contents(scope=scope))
        own = {node.id for node in sample_graph()[0] if node.partition.tenant_id == "acme"}
        entities = set().union(*visible.values())
        assert {node.id for node in nodes} == own | set(visible) | entities
        expected = {(d, "NAMES", e) for d, named in visible.items() for e in named}
        expected |= {(min(named), "NEAR", max(named)) for named in visible.values()}
        assert {edge.id for edge in edges if edge.source not in own} == expected
        assert {e for _, e in answer(graph.plan_names(scope=scope))} >= entities
        near = answer(graph.plan_neighbours([*"abcde"], Hop(fan_out=99), scope=scope))
        assert set(near) == entities
        assert {edge.id for found in near.values() for edge in found} == expected
        assert set(answer(graph.plan_nodes([*"abcde"], scope=scope))) == entities

    def test_a_document_is_copied_with_those_who_may_see_it(self, graph: WritableGraph) -> None:
        rows = {"d1": _about("d1", {"a", "b"}, ["group:hr"]), "d2": _about("d2", {"a", "c"}, [])}
        graph.replace_sources(rows)
        for document, allowed in (("d1", ["group:hr"]), ("d2", None)):
            nodes, edges = answer(graph.plan_said_by([document]))[document]
            found = [each.properties for each in nodes] + [each.properties for each in edges]
            assert [properties.get("allowed") for properties in found] == [allowed] * 6

    def test_a_scope_with_principals_deletes_no_rows(self, graph: WritableGraph) -> None:
        with pytest.raises(ConfigurationError, match="only reads a graph"):
            graph.clear(scope=Scope("acme", principals=["group:hr"]))


def _about(document: str, entities: set[str], allowed: Sequence[str]) -> Contents:
    """Return a passage that names two entities, which are near each other."""
    own = {**ACME, **({"allowed": list(allowed)} if allowed else {})}
    first, second = sorted(entities)
    edges = [Edge.of(document, "NAMES", entity, own) for entity in (first, second)]
    passage = GraphNode(document, "text_chunk", properties=own, text="t")
    return Contents([passage], [*edges, Edge.of(first, "NEAR", second, own)])
