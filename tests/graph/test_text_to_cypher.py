"""An LLM's Cypher reads, and reads one scope, or does not run."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from unittest.mock import Mock

import pytest

from llama_retrieval_ext import KGRetriever, KnowledgeRetriever, Scope, TextToCypher, open_graph
from llama_retrieval_ext.errors import ConfigurationError, UnsupportedModeError
from llama_retrieval_ext.graph.backend import WritableGraph
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.testing.fakes import FixedRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.quick import trials
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

    plan_read = Mock(side_effect=AssertionError("the graph was asked"))


def test_a_scope_with_principals_is_refused_before_the_llm_is_asked() -> None:
    llm = ScriptedLLM([])
    with AnsweringGraph(":memory:") as graph:
        for principals in ([], ["group:hr"]):
            with pytest.raises(UnsupportedModeError, match="with principals use the rules"):
                TextToCypher(graph, llm).answer("Which?", scope=Scope(principals=principals))
    assert llm.prompts == []


slow = pytest.mark.slow
LEAKS = trials(40)  # Neo4j plans each for a tenth of a second


@slow
def test_the_llm_is_shown_names_as_a_statement_has_them(graph: WritableGraph) -> None:
    at = {"tenant_id": "acme"}
    graph.upsert(
        [GraphNode("york", "Town", properties=at)], [Edge.of("york", "Is near", "hull", at)]
    )
    llm = ScriptedLLM(["MATCH (a:Town)-[:`Is near`]->(b) RETURN a.name AS a, b.name AS b"])
    found = TextToCypher(graph, llm).answer("What is near York?", scope=ACME)
    assert "(:Town)-[:`Is near`]->(:entity)" in llm.prompts[0]
    assert found is not None
    assert found.rows == ({"a": "york", "b": "hull"},)


@slow
def test_a_statement_runs_within_the_scope(graph: WritableGraph) -> None:
    llm = ScriptedLLM([f"<think>hm</think>Sure:\n```cypher\n{GOOD};\n```"])
    found = TextToCypher(graph, llm).answer("Which hazards?", scope=ACME)
    assert found is not None
    assert found.rows == ({"process": "pit acme", "hazard": "collapse acme"},)
    assert found.sentences() == ["process: pit acme; hazard: collapse acme"]
    assert "globex" not in llm.prompts[0]
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
    found = TextToCypher(graph, ScriptedLLM([statement])).answer("Which?", scope=ACME)
    assert found is not None
    (row,) = found.rows
    shown = {"tenant_id": "acme", "nested": {"depth": 6}, "id": "lift", "name": "Lift"}
    assert row["a"] == row["listed"][0][0] == row["way"][0] == shown
    assert row["collected"] == [{"tenant_id": "acme", "id": "hook", "name": "hook"}]
    for internal in ("secret-document", "group:hr", "_key", "'_id'", "_sources", "embedding"):
        assert internal not in repr(found.rows)


@slow
@pytest.mark.parametrize(
    "first", ["MATCH (n) DETACH DELETE n", "MATCH (n) RETURN nosuch.name", "MATCH (n RETURN n"]
)
def test_a_statement_that_fails_is_repaired_once(graph: WritableGraph, first: str) -> None:
    llm = ScriptedLLM([first, GOOD])
    found = asyncio.run(TextToCypher(graph, llm).aanswer("Which?", scope=ACME))
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
        rules=KGRetriever(graph), text_to_cypher=TextToCypher(graph, llm), scope=ACME
    )
    items = knowledge.infer_rules("what does pit acme need?", [], use_llm=True)
    assert [item.priority for item in items] == [1]
    both = KnowledgeRetriever(
        rules=KGRetriever(graph),
        text_to_cypher=TextToCypher(graph, ScriptedLLM([GOOD])),
        scope=ACME,
    ).infer_rules("what does pit acme need?", [], use_llm=True)
    assert [item.priority for item in both] == [1, 4]
    assert both[1].content == "process: pit acme; hazard: collapse acme"


# An expression that fails, or not, by the values of the rows that it is evaluated on.
ORACLES = [
    *("{0}.salary.x = 1", "1 / (CASE WHEN {0}.salary STARTS WITH '{1}' THEN 0 ELSE 1 END) = 1"),
    *("toInteger(left({0}.salary, 1)) > 0", "{0}.salary + 1 > 0", "-{0}.salary < 0"),
    *("size({0}.level) > {2}", "abs({0}.salary) > {2}", "{0}.level % ({0}.level - {2}) = 0"),
    *("substring({0}.salary, {2} - 5) = '{1}'", "{0}.salary[{2}] = 'x'", "NOT {0}.salary"),
    *("{0}.salary AND true", "1 / ({0}.level - {2}) > 0", "head({0}.salary) = '{1}'"),
    *("tolower({0}.level) = '{1}'", "{0}.salary IN {0}.level", "last(labels({0})).x = 1"),
    "CASE {0}.level WHEN {2} THEN {0}.salary.x ELSE true END",
]
SHAPES = [
    "MATCH ({0}) WHERE {c} RETURN {r} AS n ORDER BY n",
    "MATCH ({0}:Hazard) WHERE {c} RETURN {r} AS n ORDER BY n",
    "MATCH ({0}:Hazard)-[:NEAR]->(x:Hazard) WHERE {c} RETURN {r} AS n ORDER BY n",
    "MATCH ({0})-[:NEAR*1..2]-(x:Process) WHERE {c} RETURN {r} AS n ORDER BY n",
    "MATCH (x:Process)-[:HAS_HAZARD]->({0}) WHERE {c} RETURN {r} AS n ORDER BY n",
    "MATCH (x)-[*1..3]-({0}) WHERE {c} RETURN {r} AS n ORDER BY n",
    "MATCH (x), ({0}) WHERE x.level > {0}.level OR {c} RETURN {r} AS n ORDER BY n",
    "MATCH (x:Process) OPTIONAL MATCH (x)-[r]->({0}) WHERE {c} RETURN {r} AS n ORDER BY n",
    "MATCH (x:Process) OPTIONAL MATCH ({0}:Hazard) WHERE {c} RETURN {r} AS n ORDER BY n",
    "MATCH ({0}) MATCH ({0})--(x) WHERE {c} RETURN {r} AS n ORDER BY n",
    "MATCH way = ({0})-[*1..4]-(x) WHERE {c} OR true RETURN head(nodes(way)).name AS n ORDER BY n",
    "MATCH ({0}) WHERE {c} OR true RETURN collect({0}.tenant_id) AS n",
    "MATCH ({0}) RETURN {c} AS n ORDER BY n",
    "MATCH ({0} {{level: {2}}}) RETURN {c} AS n, count(*) AS m ORDER BY n",
]


def generated(rng: random.Random) -> str:
    variable = rng.choice("ab")
    fill = (variable, rng.choice("AS59"), rng.randint(0, 9))
    condition = f" {rng.choice(['AND', 'OR'])} ".join(
        rng.choice(ORACLES).format(*fill) for _ in range(rng.randint(1, 2))
    )
    returned = rng.choice([f"{variable}.name", "count(*)", f"{variable}.salary"])
    return rng.choice(SHAPES).format(*fill, c=condition, r=returned)


def write_facts(
    graph: WritableGraph, own: Mapping[str, object] = {}, other: Mapping[str, object] = {}
) -> None:
    graph.clear(scope=None)
    for tenant, values in (("acme", own), ("globex", other)):
        at = {"tenant_id": tenant}
        nodes = [
            GraphNode(id_, label, f"{id_} {tenant}", {**at, **values})
            for id_, label in (("pit", "Process"), ("collapse", "Hazard"), ("flood", "Hazard"))
        ]
        edges = [("pit", "HAS_HAZARD", "collapse"), ("collapse", "NEAR", "flood")]
        graph.upsert(nodes, [Edge.of(*edge, at) for edge in edges])


@slow
@pytest.mark.parametrize("own", [{}, {"salary": "500", "level": 3}], ids=["none", "some"])
def test_the_outcome_of_a_statement_never_depends_on_another_tenant(
    graph: WritableGraph, own: dict[str, object]
) -> None:
    rng = random.Random(17)
    statements = [generated(rng) for _ in range(LEAKS)]
    outcomes = []
    for other in ({"salary": "SECRET 90,000 EUR", "level": 0}, {"salary": 9, "level": [5]}, {}):
        write_facts(graph, own, other)
        outcomes.append([outcome(graph, statement) for statement in statements])
    for statement, *each in zip(statements, *outcomes, strict=True):
        assert each[0] == each[1] == each[2], statement
        assert "SECRET" not in each[0]
        assert "globex" not in each[0]
    failed = sum("the server refuses it" in text for text in outcomes[0])
    assert failed < LEAKS * 9 / 10
    assert failed > LEAKS / 10 or not own  # both kinds of outcome were compared


def outcome(graph: WritableGraph, statement: str) -> str:
    """What a caller and the language model see: rows, degraded parts and prompts."""
    llm = ScriptedLLM([statement, "no"])
    knowledge = KnowledgeRetriever(
        rules=FixedRetriever([("r", 0.9, "A rule")]),
        text_to_cypher=TextToCypher(graph, llm),
        scope=ACME,
    )
    rows = [item.content for item in knowledge.infer_rules("which?", ["pit"], use_llm=True)]
    return repr((rows, llm.prompts))
