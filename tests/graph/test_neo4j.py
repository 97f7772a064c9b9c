"""A graph on a real Neo4j: what LlamaIndex wrote is read, and no text becomes Cypher."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from unittest.mock import Mock

import pytest
from llama_index.core.graph_stores.types import ChunkNode, EntityNode, Relation
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import ConfigurationError, StoreError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.cypher import Rows
from llama_retrieval_ext.graph.elements import CHUNK_LABEL, Contents, Edge, GraphNode, Hop
from llama_retrieval_ext.graph.expansion import expand
from llama_retrieval_ext.graph.neo4j import Neo4jGraph
from llama_retrieval_ext.graph.open import graph_of
from llama_retrieval_ext.graph.rules.matching import find_matches
from llama_retrieval_ext.graph.rules.rule import Pattern, Step, Where
from llama_retrieval_ext.graph.rules.yaml import parse_rules
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.testing.graph_contract import SCOPE, answer, sample_graph
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]

ACME = {"tenant_id": "acme"}

pytestmark = pytest.mark.slow


@pytest.fixture
def graph(neo4j_url: str) -> Iterator[Neo4jGraph]:
    with Neo4jGraph.open(neo4j_url) as graph:
        for name in constraints(graph):
            graph.connection.write(f"DROP CONSTRAINT {name}", {}).function()
        graph.clear(scope=None)
        yield graph
        for name in constraints(graph):
            graph.connection.write(f"DROP CONSTRAINT {name}", {}).function()


def constraints(graph: Neo4jGraph) -> list[str]:
    rows = graph.read("SHOW CONSTRAINTS YIELD name", {})
    return [row["name"] for row in rows if not row["name"].startswith("llama_retrieval")]


def test_what_llamaindex_wrote_is_read_and_kept(graph: Neo4jGraph, neo4j_url: str) -> None:
    module = pytest.importorskip("llama_index.graph_stores.neo4j")
    acme = {"tenant_id": "acme", "triplet_source_id": "p1"}
    store = module.Neo4jPropertyGraphStore(username="", password="", url=neo4j_url)
    with closing(store):
        store.upsert_nodes([ChunkNode(text="Pits need shoring.", id_="p1", properties=acme)])
        store.upsert_nodes(
            [EntityNode(name=name, label="Thing", properties=acme) for name in ("pit", "shoring")]
        )
        store.upsert_relations(
            [Relation(label="NEEDS", source_id="pit", target_id="shoring", properties=acme)]
        )
        theirs = graph_of(store)
        assert isinstance(theirs, Neo4jGraph)
        with closing(theirs):
            for each in (theirs, graph):
                found = expand(each, ["shoring"], max_hops=1, scope=SCOPE)
                assert found.distances == {"shoring": 0, "p1": 1, "pit": 1}
            nodes = answer(theirs.plan_nodes(["p1", "pit"], scope=SCOPE))
            assert (nodes["p1"].text, nodes["pit"].label) == ("Pits need shoring.", "Thing")
            assert answer(theirs.plan_nodes(["pit"], scope=Scope("globex"))) == {}
        graph.upsert([GraphNode("pit", "Pit", properties={"tenant_id": "acme"})], [])
        assert answer(graph.plan_nodes(["pit"], scope=SCOPE))["pit"].label == "Pit"
        assert [node.name for node in store.get(ids=["pit"])] == ["pit"]


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_two_tenants_and_llamaindex_share_a_database_in_either_order(
    graph: Neo4jGraph, neo4j_url: str, first: str
) -> None:
    module = pytest.importorskip("llama_index.graph_stores.neo4j")

    def write_ours() -> None:
        for tenant in ("acme", "globex"):
            own = {"tenant_id": tenant, "of": tenant}
            node = GraphNode("pit", "Process", f"pit of {tenant}", own)
            graph.upsert(
                [node], [Edge.of("pit", "HAS", "crane", {"tenant_id": tenant})], source="d"
            )

    def write_theirs() -> None:
        store = module.Neo4jPropertyGraphStore(username="", password="", url=neo4j_url)
        with closing(store), closing(graph_of(store)) as read:
            store.upsert_nodes([EntityNode(name=name, properties=ACME) for name in ("pit", "dump")])
            near = Relation(label="NEAR", source_id="pit", target_id="dump", properties=ACME)
            store.upsert_relations([near])
            assert {"pit", "dump"} <= {node.id for node in store.get(ids=["pit", "dump"])}
            assert answer(read.plan_nodes(["dump"], scope=SCOPE))  # also opens the async driver

    steps = [write_ours, write_theirs] if first == "ours" else [write_theirs, write_ours]
    for step in (*steps, write_ours):  # writing again adopts what the other wrote
        step()
    for tenant, near in (("acme", {"crane", "dump"}), ("globex", {"crane"})):
        scope = Scope(tenant)
        (edges,) = graph.neighbours(["pit"], scope=scope).values()
        assert {edge.other("pit") for edge in edges} == near
        assert graph.nodes(["crane"], scope=scope)["crane"].properties == {"tenant_id": tenant}
        pattern = Pattern(
            "a", steps=(Step("a", ("HAS",), "b"),), where=(Where("b", "id", value="crane"),)
        )
        found = find_matches(graph, pattern, seeds=["pit"], context={}, scope=scope).function()
        assert [match.ids for match in found] == [("pit", "crane")]
    assert graph.nodes(["pit"], scope=Scope("globex"))["pit"].name == "pit of globex"
    graph.delete_sources(["d"], scope=None)
    assert graph.nodes(["pit", "crane"], scope=Scope("globex")) == {}


def test_a_read_cannot_write(graph: Neo4jGraph) -> None:
    with pytest.raises(StoreError, match="refuses"):
        graph.read("CREATE (n:__Node__ {id: 'x'}) RETURN n", {})
    assert graph.read("MATCH (n) RETURN count(n) AS n", {}) == [{"n": 0}]


HOSTILE = [
    *("`", "``", "'", '"', "\\", "\\u0060", "{", "}", "$", "//", "/*", "\n", "\0", ")", "]", "|"),
    *("`]-() DETACH DELETE n //", "A`) MATCH (m) DETACH DELETE m //", "' OR 1=1 //", "*0..9"),
    *("A|B", ":X", "n.id", "危险", "tenant_id", "id", "A B", "`A`", "$seeds", "A`{k:1}"),
]


def hostile(rng: random.Random) -> str:
    return "".join(rng.choice(HOSTILE) for _ in range(rng.randint(1, 3)))


def test_no_text_becomes_cypher(graph: Neo4jGraph) -> None:
    rng = random.Random(4)
    nodes, edges = sample_graph()
    graph.upsert(nodes, edges)
    before = content(graph)
    sent = 0
    while sent < 2_000:
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


def test_no_rule_file_becomes_cypher(graph: Neo4jGraph) -> None:
    rng = random.Random(7)
    nodes, edges = sample_graph()
    graph.upsert(nodes, edges)
    before, asked = content(graph), 0
    for _ in range(300):
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
        asked += 1
    assert asked > 50
    assert content(graph) == before


def test_written_text_stays_text(graph: Neo4jGraph) -> None:
    rng = random.Random(9)
    graph.upsert(*sample_graph())
    others = [row for row in content(graph) if row["p"].get("tenant_id") == "globex"]
    for text in [*HOSTILE, *(hostile(rng) for _ in range(60))]:
        if "\0" in text:
            continue
        node = GraphNode(text, text, text, {"tenant_id": "acme", "k": text})
        edge = Edge.of(text, text, text, {"tenant_id": "acme"})
        graph.upsert([node], [edge], source=text)
        assert graph.nodes([text], scope=SCOPE)[text].names == (text,)
        (found,) = graph.neighbours([text], Hop(), scope=SCOPE)[text]
        assert found.type == text
    assert [row for row in content(graph) if row["p"].get("tenant_id") == "globex"] == others


def content(graph: Neo4jGraph) -> Rows:
    return graph.read(
        "MATCH (n) OPTIONAL MATCH (n)-[r]->(m) RETURN n.id AS a, labels(n) AS l, "
        "properties(n) AS p, type(r) AS t, m.id AS b ORDER BY n.id, t, b, toString(n.tenant_id)",
        {},
    )


def test_what_many_documents_say_is_written_in_one_round_trip(
    graph: Neo4jGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = {"tenant_id": "acme"}
    said = {
        f"d{n}": Contents([GraphNode(f"p{n}", text="", properties=acme)], [mention(f"p{n}", acme)])
        for n in range(100)
    }
    graph.replace_sources({})  # makes the constraint
    write = Mock(wraps=graph.connection.write)
    monkeypatch.setattr(graph.connection, "write", write)
    for _ in range(2):
        graph.replace_sources(said)
    assert write.call_count == 2
    nodes, edges = graph.contents(scope=Scope("acme"))
    assert (len(nodes), len(edges)) == (101, 100)


def mention(passage: str, properties: dict[str, str]) -> Edge:
    return Edge.of(passage, "MENTIONS", "crane", properties)


def test_rows_of_several_batches_are_as_of_one(
    graph: Neo4jGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llama_retrieval_ext.graph.neo4j._BATCH", 2)
    things = [GraphNode(f"n{number}", "Thing") for number in range(4)]
    nodes = [*things, *(GraphNode(f"n{number}", CHUNK_LABEL, text="x") for number in range(4, 8))]
    edges = [Edge.of(a.id, "R", b.id) for a in nodes for b in nodes if a != b]
    graph.upsert(nodes, edges, source="d")
    found = graph.said_by(["d"])["d"]
    assert sorted((each.id, each.label, each.text) for each in found.nodes) == [
        (each.id, each.label, each.text) for each in nodes
    ]
    assert {edge.id for edge in found.edges} == {edge.id for edge in edges}
    graph.delete_sources(["d"], scope=None)
    assert graph.contents(scope=None) == Contents([], [])
