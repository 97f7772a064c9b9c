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
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.graph_contract import ACME, answer


class GraphPermissions:
    """Tests to inherit beside `WritableGraphContract`; ``turns`` is the number of random writes."""

    turns = 60

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

    def test_a_document_is_copied_with_its_own_words_and_principals(
        self, graph: WritableGraph
    ) -> None:
        written = {
            document: _describing(document, document, "ab", allowed)
            for document, allowed in (("d1", ["group:hr"]), ("d2", []))
        }
        for document, rows in written.items():
            graph.replace_sources({document: rows})
        for document, expected in written.items():
            found = answer(graph.plan_claims_of([document]))[document]
            assert {node.id: node for node in found.nodes} == {
                node.id: node for node in expected.nodes
            }
            assert [edge.properties for edge in sorted(found.edges)] == [
                edge.properties for edge in sorted(expected.edges)
            ]

    def test_the_latest_visible_version_of_a_row_is_shown(self, graph: WritableGraph) -> None:
        hr, everyone = Scope("acme", principals=["group:hr"]), Scope("acme", principals=[])

        def write(document: str, word: str, *allowed: str) -> None:
            own = {**ACME, "word": word, **({"allowed": [*allowed]} if allowed else {})}
            passage = GraphNode("hoist", "text_chunk", properties=own, text=word)
            rows = Contents([passage], [Edge.of("hoist", "LIFTS", "beam", own)])
            graph.replace_sources({document: rows})

        def check(scope: Scope, word: str | None) -> None:
            nodes, edges = answer(graph.plan_contents(scope=scope))
            hoists = [node for node in nodes if node.id == "hoist"]
            words = [(node.text, node.properties["word"]) for node in hoists]
            assert words == ([] if word is None else [(word, word)])
            lifts = [edge.properties["word"] for edge in edges if edge.type == "LIFTS"]
            assert lifts == ([] if word is None else [word])

        for document, word, allowed, for_hr, for_everyone in (
            ("c", "zinc", ["group:hr"], "zinc", None),
            ("b", "iron", [], "iron", "iron"),
            ("a", "gold", ["group:hr"], "gold", "iron"),
            ("b", "clay", [], "clay", "clay"),
            ("b", "lead", ["group:it"], "gold", None),
        ):
            write(document, word, *allowed)
            check(hr, for_hr)
            check(everyone, for_everyone)
            check(Scope("acme"), word)
        graph.delete_sources(["b"], scope=None)
        check(Scope("acme"), "gold")
        graph.delete_sources(["a"], scope=None)
        check(Scope("acme"), "zinc")
        graph.delete_sources(["c"], scope=None)
        check(Scope("acme"), None)

    def test_a_scope_with_principals_deletes_no_rows(self, graph: WritableGraph) -> None:
        with pytest.raises(ConfigurationError, match="only reads a graph"):
            graph.clear(scope=Scope("acme", principals=["group:hr"]))

    def test_one_document_instead_of_a_list_is_not_deleted(self, graph: WritableGraph) -> None:
        with pytest.raises(ConfigurationError, match=r"a list of documents, got 'd1'; write \["):
            graph.delete_sources("d1", scope=None)


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
    names = answer(graph.plan_names(scope=scope))
    shown = str((nodes, near, contents, names, conclusions))
    shown += str(run(summary(graph, scope=scope)))
    assert "allowed" not in shown
    tokens = {str(own.nodes[0].text).removesuffix("text") for own in visible.values()}
    assert set(re.findall(r"d\d-turn\d+-", shown)) <= tokens
    visible_edges = {edge.id for own in visible.values() for edge in own.edges}
    assert {edge.id for edge in contents.edges if edge.type in {"BESIDE", "NAMES"}} == visible_edges
    ids = nodes.keys() & set("abc")
    assert {node.id for node in contents.nodes} & set("abc") == near.keys() == ids
    assert {id_ for _, id_ in names} & set("abc") == ids
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
    concluded = {(conclusion.bindings[0][1], conclusion.text) for conclusion in conclusions}
    assert concluded == {
        (edge.source, f"{nodes[edge.source].name}: {nodes[edge.source].properties['value']}")
        for edge in contents.edges
        if edge.type == "BESIDE" and "value" in nodes[edge.source].properties
    }


_RULES = parse_rules(
    "rules: [{id: near, match: [{node: x}, {follow: BESIDE, node: y}], then: '{x}: {x.value}', "
    "where: [{node: x, property: value, operator: text_match, value: property}]}]"
)
