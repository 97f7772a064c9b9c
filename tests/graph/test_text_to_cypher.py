"""An LLM's Cypher reads, for a caller without a scope, or does not run."""

import asyncio
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from llama_retrieval_ext import KGRetriever, KnowledgeRetriever, Scope, TextToCypher, open_graph
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.backend import GraphSummary, WritableGraph
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.text_to_cypher import GeneratedRetriever, _described
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.cases import cases
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]

ACME = Scope("acme")
GOOD = "MATCH (p:Process)-[:HAS_HAZARD]->(h:Hazard) RETURN p.name AS process, h.name AS hazard"


def test_an_embedded_graph_answers_no_cypher() -> None:
    with EmbeddedGraph(":memory:") as graph, pytest.raises(ConfigurationError, match="Neo4j"):
        TextToCypher(graph, ScriptedLLM([]))


@pytest.fixture
def graph(neo4j_url: str) -> Iterator[WritableGraph]:
    with open_graph(neo4j_url) as graph:
        write_facts(graph)
        yield graph
        graph.clear(scope=None)


class AnsweringGraph(EmbeddedGraph):
    """A graph that would answer Cypher, and fails when it is asked."""

    plan_has_dates = Mock()
    plan_read = Mock(side_effect=AssertionError("the graph was asked"))


@cases("scope", [ACME, Scope(principals=[]), Scope(kb_ids=["handbook"])])
def test_under_a_scope_neither_llm_nor_graph_is_asked(scope: Scope) -> None:
    llm = ScriptedLLM([])
    with AnsweringGraph(":memory:") as graph:
        assert TextToCypher(graph, llm).answer("Which?", scope=scope) is None
        result = GeneratedRetriever(TextToCypher(graph, llm)).for_scope(scope).search("Which?")
    assert "not run for a scope" in result.degraded[0].reason
    assert llm.prompts == []


slow = pytest.mark.slow


@slow
def test_the_llm_is_shown_names_as_a_statement_has_them(graph: WritableGraph) -> None:
    at = {"tenant_id": "acme"}
    graph.upsert(
        [GraphNode("york", "Town", properties=at)], [Edge.of("york", "Is near", "hull", at)]
    )
    llm = ScriptedLLM(["MATCH (a:Town)-[:`Is near`]->(b) RETURN a.name AS a, b.name AS b"])
    found = TextToCypher(graph, llm).answer("What is near York?")
    assert "(:Town)-[:`Is near`]->(:entity)" in llm.prompts[0]
    assert found is not None
    assert found.rows == ({"a": "york", "b": "hull"},)


@slow
def test_a_statement_runs_without_a_scope(graph: WritableGraph) -> None:
    llm = ScriptedLLM([f"<think>hm</think>Sure:\n```cypher\n{GOOD};\n```"])
    found = TextToCypher(graph, llm).answer("Which hazards?")
    assert found is not None
    assert found.rows == ({"process": "pit acme", "hazard": "collapse acme"},)
    assert found.sentences() == ["process: pit acme; hazard: collapse acme"]
    assert "(:Process)-[:HAS_HAZARD]->(:Hazard)" in llm.prompts[0]


@slow
def test_returned_nodes_have_no_internal_properties(graph: WritableGraph) -> None:
    own = {"tenant_id": "acme", "nested": {"depth": 6}, "allowed": ["group:hr"]}
    graph.upsert(
        [GraphNode("lift", "Process", "Lift", own, embedding=[0.5])],
        [Edge.of("lift", "USES", "hook", own)],
        source="secret-document",
    )
    returned = "a, r, way, [[a], b] AS listed, collect(b) AS collected"
    statement = f"MATCH way = (a)-[r:USES]->(b) RETURN {returned}"
    found = TextToCypher(graph, ScriptedLLM([statement])).answer("Which?")
    assert found is not None
    (row,) = found.rows
    shown = {"tenant_id": "acme", "nested": {"depth": 6}, "id": "lift", "name": "Lift"}
    assert row["a"] == row["listed"][0][0] == row["way"][0] == shown
    assert row["collected"] == [{"tenant_id": "acme", "id": "hook", "name": "hook"}]
    for internal in ("secret-document", "group:hr", "_key", "'_id'", "_claims", "embedding"):
        assert internal not in repr(found.rows)


@slow
@pytest.mark.parametrize(
    "first", ["MATCH (n) DETACH DELETE n", "MATCH (n) RETURN nosuch.name", "MATCH (n RETURN n"]
)
def test_a_statement_that_fails_is_repaired_once(graph: WritableGraph, first: str) -> None:
    llm = ScriptedLLM([first, GOOD])
    found = asyncio.run(TextToCypher(graph, llm).aanswer("Which?"))
    assert found is not None
    assert len(found.rows) == 1
    assert "Because:" in llm.prompts[1]
    assert first in llm.prompts[1]


@slow
@pytest.mark.parametrize("answers", [["MATCH (n) DELETE n"] * 2, [ConnectionError("down")], [""]])
def test_rules_answer_alone_if_the_llm_writes_no_usable_statement(
    graph: WritableGraph, answers: list[str]
) -> None:
    llm = ScriptedLLM(answers)
    knowledge = KnowledgeRetriever(
        rules=KGRetriever(graph), text_to_cypher=TextToCypher(graph, llm)
    )
    items = knowledge.infer_rules("what does pit acme need?", [], use_llm=True)
    assert [item.priority for item in items] == [1]
    untouched = ScriptedLLM([])
    scoped = KnowledgeRetriever(
        rules=KGRetriever(graph), text_to_cypher=TextToCypher(graph, untouched), scope=ACME
    )
    items = scoped.infer_rules("what does pit acme need?", [], use_llm=True)
    assert ([item.priority for item in items], untouched.prompts) == ([1], [])
    both = KnowledgeRetriever(
        rules=KGRetriever(graph), text_to_cypher=TextToCypher(graph, ScriptedLLM([GOOD]))
    ).infer_rules("what does pit acme need?", [], use_llm=True)
    assert [item.priority for item in both] == [1, 4]
    assert both[1].content == "process: pit acme; hazard: collapse acme"


def write_facts(graph: WritableGraph) -> None:
    graph.clear(scope=None)  # a server is shared by many tests
    at = {"tenant_id": "acme"}
    nodes = [
        GraphNode(id_, label, f"{id_} acme", at)
        for id_, label in (("pit", "Process"), ("collapse", "Hazard"), ("flood", "Hazard"))
    ]
    edges = [("pit", "HAS_HAZARD", "collapse"), ("collapse", "NEAR", "flood")]
    graph.upsert(nodes, [Edge.of(*edge, at) for edge in edges])


@slow
@pytest.mark.parametrize(
    "statement",
    [
        "MATCH (n) CALL apoc.cypher.run('x', {}) YIELD value RETURN value",
        "MATCH (n) LOAD /* */ CSV FROM 'http://127.0.0.1/' AS line RETURN line",
        "MATCH (n) RETURN n UNION SHOW USERS",
        "MATCH (n) \\u0043ALL db.labels() YIELD label RETURN label",
    ],
)
def test_files_procedures_and_commands_are_refused(graph: WritableGraph, statement: str) -> None:
    llm = ScriptedLLM([statement, statement])
    result = GeneratedRetriever(TextToCypher(graph, llm)).search("Which?")
    assert not result.hits
    assert "is refused" in result.degraded[0].reason


def test_names_that_would_leave_their_line_of_the_prompt_are_left_out() -> None:
    hostile = ("two\nlines", "a`) RETURN 1", "call send_mail " * 10)
    relations = [("Dish", "CONTAINS", "Food"), *(("Dish", name, "Food") for name in hostile)]
    labels = dict.fromkeys(("Dish", *hostile), 1)
    schema = GraphSummary(labels, dict.fromkeys(relations, 1))
    assert _described(schema) == "(:Dish)-[:CONTAINS]->(:Food)"
    assert _described(GraphSummary(labels)) == "(:Dish)"
