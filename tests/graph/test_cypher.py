"""Text of queries, rules and data never becomes Cypher, on a real Neo4j."""

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import date

import pytest
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.cypher import Rows
from llama_retrieval_ext.graph.elements import Edge, GraphNode, Hop
from llama_retrieval_ext.graph.neo4j import Neo4jGraph
from llama_retrieval_ext.graph.neo4j_rows import edge_of, node_of
from llama_retrieval_ext.graph.rules.matching import find_matches
from llama_retrieval_ext.graph.rules.rule import Pattern, Step, Where
from llama_retrieval_ext.graph.rules.yaml import parse_rules
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.graph_contract import SCOPE, answer, sample_graph
from tests.cases import cases
from tests.quick import trials
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]

pytestmark = pytest.mark.slow

HOSTILE = [
    *("`", "``", "'", '"', "\\", "\\u0060", "{", "}", "$", "//", "/*", "\n", "\0", ")", "]", "|"),
    *("`]-() DETACH DELETE n //", "A`) MATCH (m) DETACH DELETE m //", "' OR 1=1 //", "*0..9"),
    *("A|B", ":X", "n.id", "危险", "tenant_id", "id", "A B", "`A`", "$seeds", "A`{k:1}"),
]


def hostile(rng: random.Random) -> str:
    return "".join(rng.choice(HOSTILE) for _ in range(rng.randint(1, 3)))


def test_hostile_names_and_scopes_do_not_become_cypher(graph: Neo4jGraph) -> None:
    rng = random.Random(4)
    nodes, edges = sample_graph()
    graph.upsert(nodes, edges)
    before = content(graph)
    sent = 0
    while sent < trials(80):
        with suppress(ConfigurationError):  # refused before it is sent
            assert "spy" not in repr(attempt(graph, rng)).casefold()
            sent += 1
    assert content(graph) == before


def attempt(graph: Neo4jGraph, rng: random.Random) -> object:
    text = hostile(rng)
    scope = Scope(text if text.strip() else "x", kb_ids=[hostile(rng)])
    kind = rng.randrange(8)
    requests: list[Callable[[], Call[object]]] = [
        lambda: graph.plan_nodes([text, "pit"], scope=SCOPE),
        lambda: graph.plan_neighbours(["pit", text], Hop(types=frozenset({text})), scope=SCOPE),
        lambda: graph.plan_neighbours(["pit", "collapse", "spy"], Hop(), scope=scope),
        lambda: graph.plan_contents(scope=scope),
        lambda: graph.plan_delete_sources([text], scope=SCOPE),
    ]
    if kind < len(requests):
        return requests[kind]().function()
    step = Step("a", (text if kind == 5 else "HAS",), "b")
    labels = (("b", text),) if kind == 6 else ()
    key, value = (text, 1) if rng.random() < 0.5 else ("name", text)
    where = (Where("b", key, FilterOperator.NE, value),) if kind == 7 else ()
    pattern = Pattern("a", labels, (step,), (), where)
    return find_matches(graph, pattern, seeds=["pit", text], context={}, scope=SCOPE).function()


def test_hostile_rule_files_do_not_become_cypher(graph: Neo4jGraph) -> None:
    rng = random.Random(7)
    nodes, edges = sample_graph()
    graph.upsert(nodes, edges)
    before, sent = content(graph), 0
    for _ in range(trials(60)):
        words = [hostile(rng) if rng.random() < 0.3 else "HAS" for _ in range(4)]
        lines = [
            f"rules: [{{id: {words[0]!r}, match: [{{node: a}}, {{follow: {words[1]!r}, node: b,",
            f" label: {words[2]!r}}}], where: [{{node: b, property: {words[3]!r}, value: 1}}],",
            " then: x}]",
        ]
        try:
            (rule,) = parse_rules("".join(lines))
        except ValueError:
            continue
        answer(find_matches(graph, rule.pattern, seeds=["pit"], context={}, scope=SCOPE))
        sent += 1
    assert sent > 8
    assert content(graph) == before


def test_hostile_text_written_to_neo4j_stays_text(graph: Neo4jGraph) -> None:
    rng = random.Random(9)
    graph.upsert(*sample_graph())
    others = [row for row in content(graph) if row["p"].get("tenant_id") == "globex"]
    written = [*HOSTILE, *(hostile(rng) for _ in range(20))]
    texts = list(dict.fromkeys(text for text in written if "\0" not in text))
    own = {"tenant_id": "acme"}
    graph.upsert(
        [GraphNode(text, text, text, {**own, "k": text}) for text in texts],
        [Edge.of(text, text, text, own) for text in texts],
        source="".join(texts),
    )
    nodes, edges = (graph.nodes(texts, scope=SCOPE), graph.neighbours(texts, scope=SCOPE))
    assert [node.names for node in nodes.values()] == [(text,) for text in texts]
    assert [edge.type for (edge,) in edges.values()] == texts
    assert [row for row in content(graph) if row["p"].get("tenant_id") == "globex"] == others


@cases("principals", [None, ["group:hr"]])
def test_dates_that_another_program_wrote_are_read_in_a_scope(principals: list[str] | None) -> None:
    scope, stored = Scope("acme", principals=principals), {"id": "a", "built": date(2024, 5, 8)}
    node = node_of({"labels": ["__Entity__"], "properties": stored}, scope)
    assert node.properties == {"built": date(2024, 5, 8)}
    supported = {**stored, "_claims": ["d\0\0{}"]}
    assert edge_of(["a", "IS", "b", stored], scope).properties["built"] == "2024-05-08"
    assert edge_of(["a", "IS", "b", supported], Scope("acme")).properties["built"] == "2024-05-08"


def content(graph: Neo4jGraph) -> Rows:
    return graph.read(
        "MATCH (n) OPTIONAL MATCH (n)-[r]->(m) RETURN n.id AS a, labels(n) AS l, "
        "properties(n) AS p, type(r) AS t, m.id AS b ORDER BY n.id, t, b, toString(n.tenant_id)",
        {},
    )
