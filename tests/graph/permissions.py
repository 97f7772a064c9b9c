"""What every writable graph keeps to about the principals who may see its rows."""

import re
from collections.abc import Mapping, Sequence
from random import Random

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.graph.backend import WritableGraph, summary
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode, Hop
from llama_retrieval_ext.graph.rules.inference import infer
from llama_retrieval_ext.graph.rules.yaml import parse_rules
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.testing.graph_contract import ACME, answer, sample_graph


class GraphPermissions:
    """Tests to inherit beside `WritableGraphContract`; ``turns`` is the number of random writes."""

    turns = 60

    def test_a_row_is_visible_through_a_visible_document_that_supports_it(
        self, graph: WritableGraph
    ) -> None:
        random = Random(5)
        groups, said = [f"group:{number}" for number in range(4)], dict[str, list[str]]()
        links: dict[str, set[str]] = {}
        for _ in range(self.turns // 2):
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

    def test_nothing_that_only_hidden_documents_say_of_shared_rows_is_shown(
        self, graph: WritableGraph
    ) -> None:
        random, said = Random(11), dict[str, tuple[list[str], Contents]]()
        for turn in range(self.turns):
            document = f"d{random.randrange(6)}"
            if document in said and random.random() < 0.3:
                graph.delete_sources([document], scope=None)
                del said[document]
            else:
                allowed = random.sample("xyz", random.randrange(3))
                token = f"{document}-turn{turn}-"
                rows = _describing(document, token, random.sample("abc", 2), allowed)
                said[document] = allowed, rows
                graph.replace_sources({document: rows})
            principals = random.sample("xyz", random.randrange(3))
            visible = {d: own for d, (n, own) in said.items() if not n or set(n) & set(principals)}
            _check_said(graph, Scope("acme", principals=principals), visible)
            _check_said(graph, Scope("acme"), {d: own for d, (_, own) in said.items()})

    def test_a_document_is_shared_and_copied_with_its_own_words(self, graph: WritableGraph) -> None:
        for document in ("d1", "d2"):
            graph.replace_sources({document: _describing(document, document, "ab", [])})
        for document in ("d1", "d2"):
            found = answer(graph.plan_said_by([document]))[document]
            expected = _describing(document, document, "ab", [])
            assert {each.id: each for each in found.nodes} == {
                each.id: each for each in expected.nodes
            }
            assert [each.properties for each in sorted(found.edges)] == [
                each.properties for each in sorted(expected.edges)
            ]

    def test_a_document_is_copied_with_those_who_may_see_it(self, graph: WritableGraph) -> None:
        rows = {"d1": _about("d1", {"a", "b"}, ["group:hr"]), "d2": _about("d2", {"a", "c"}, [])}
        graph.replace_sources(rows)
        for document, allowed in (("d1", ["group:hr"]), ("d2", None)):
            nodes, edges = answer(graph.plan_said_by([document]))[document]
            found = [each.properties for each in nodes] + [each.properties for each in edges]
            assert [properties.get("allowed") for properties in found] == [allowed] * 4

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


def _describing(
    document: str, token: str, entities: Sequence[str], allowed: Sequence[str]
) -> Contents:
    """Return a passage that describes an entity, and names another as the end of an edge."""
    names = {"allowed": list(allowed)} if allowed else {}
    described, other = entities
    own = {"value": f"{token}property", "aliases": [f"{token}alias"], **ACME, **names}
    nodes = [
        GraphNode(document, "text_chunk", properties={**ACME, **names}, text=f"{token}text"),
        GraphNode(described, f"{token}label", f"{token}name", own),
    ]
    weight = {"weight": float(int(document[1:]) + 2), "note": f"{token}note", **ACME, **names}
    edges = [Edge.of(min(entities), "BESIDE", max(entities), weight)]
    return Contents(nodes, [*edges, Edge.of(document, "NAMES", other, {**ACME, **names})])


def _check_said(graph: WritableGraph, scope: Scope, visible: Mapping[str, Contents]) -> None:
    """Check that each shared row says what a visible document says, and all outputs no more."""
    nodes = answer(graph.plan_nodes([*"abc", *(f"d{n}" for n in range(6))], scope=scope))
    near = answer(graph.plan_neighbours([*"abc"], Hop(fan_out=2), scope=scope))
    contents = answer(graph.plan_contents(scope=scope))
    conclusions = run(infer(graph, _RULES, seeds=None, scope=scope))
    shown = str((nodes, near, contents, answer(graph.plan_names(scope=scope)), conclusions))
    shown += str(run(summary(graph, scope=scope)))
    assert "allowed" not in shown
    tokens = {str(own.nodes[0].text).removesuffix("text") for own in visible.values()}
    assert set(re.findall(r"d\d-turn\d+-", shown)) <= tokens
    for id_ in "abc":
        described = [
            (node.label, node.name, node.properties["value"])
            for own in visible.values()
            for node in own.nodes
            if node.id == id_
        ]
        named = {end for own in visible.values() for edge in own.edges for end in edge.id}
        node = nodes.get(id_)
        assert (node is not None) == (bool(described) or id_ in named)
        if node is not None:
            found = (node.label, node.name, node.properties.get("value"))
            assert found in (described or [("entity", id_, None)])
    concluded = {(each.bindings[0][1], each.text) for each in conclusions}
    assert concluded == {
        (edge.source, f"{nodes[edge.source].name}: {nodes[edge.source].properties['value']}")
        for edge in contents.edges
        if edge.type == "BESIDE" and "value" in nodes[edge.source].properties
    }


_RULES = parse_rules(
    "rules: [{id: near, match: [{node: x}, {follow: BESIDE, node: y}], then: '{x}: {x.value}', "
    "where: [{node: x, property: value, operator: text_match, value: property}]}]"
)
