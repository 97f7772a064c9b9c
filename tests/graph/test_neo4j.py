"""A graph on a real Neo4j: what LlamaIndex wrote is read, and no text becomes Cypher."""

import asyncio
import gc
import time
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from typing import Any
from unittest.mock import Mock

import neo4j
import pytest
from llama_index.core.graph_stores.types import ChunkNode, EntityNode, Relation
from neo4j.exceptions import Neo4jError

from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.graph.cypher import REPLACE, Rows
from llama_retrieval_ext.graph.elements import CHUNK_LABEL, Contents, Edge, GraphNode
from llama_retrieval_ext.graph.neo4j import Neo4jGraph
from llama_retrieval_ext.graph.neo4j_connection import Statement
from llama_retrieval_ext.graph.neo4j_rows import batch_rows
from llama_retrieval_ext.graph.open import graph_of
from llama_retrieval_ext.graph.rules.inference import infer
from llama_retrieval_ext.graph.rules.matching import find_matches
from llama_retrieval_ext.graph.rules.rule import Pattern, Step, Where
from llama_retrieval_ext.graph.rules.yaml import parse_rules
from llama_retrieval_ext.retrievers.kg_rule import KGRetriever
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.graph_contract import SCOPE, answer
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]

ACME = {"tenant_id": "acme"}

pytestmark = pytest.mark.slow


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
            store.upsert_nodes([ChunkNode(text="Pits.", id_="p1", properties=ACME)])
            from_chunk = {**ACME, "triplet_source_id": "p1"}
            store.upsert_nodes(
                [EntityNode(name=name, properties=from_chunk) for name in ("pit", "dump")]
            )
            near = Relation(label="NEAR", source_id="pit", target_id="dump", properties=ACME)
            store.upsert_relations([near])
            assert {"pit", "dump"} <= {node.id for node in store.get(ids=["pit", "dump"])}
            assert isinstance(read, Neo4jGraph)
            found = answer(read.plan_nodes(["p1", "dump"], scope=SCOPE))
            assert (found["p1"].text, found["dump"].is_passage) == ("Pits.", False)
            assert answer(read.plan_nodes(["dump"], scope=Scope("globex"))) == {}

    steps = [write_ours, write_theirs] if first == "ours" else [write_theirs, write_ours]
    for step in (*steps, write_ours):  # writing again adopts what the other wrote
        step()
    for tenant, near in (("acme", {"crane", "dump", "p1"}), ("globex", {"crane"})):
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


def test_rules_compare_dates_and_hold_for_principals_in_several_knowledge_bases(
    graph: Neo4jGraph,
) -> None:
    rules = parse_rules(
        "rules: [{id: r, match: [{node: a, label: Site}, {follow: HAS, node: b}], then: '{b}', "
        "where: [{node: b, property: day, operator: '>=', value: '2024-01-31'}]}]"
    )
    for kb_id, day in (("x", "2024-02-01"), ("y", "2024-01-31T23:00+01:00"), ("z", "2023-09-09")):
        own = {"tenant_id": "acme", "kb_id": kb_id}
        hazard = GraphNode("b", "Hazard", kb_id, {**own, "day": day})
        nodes = [GraphNode("pit", "Site", properties=own), hazard]
        graph.upsert(nodes, [Edge.of("pit", "HAS", "b", own)])
    graph.connection.write(
        "MATCH (n {tenant_id: 'acme'}) SET n.built = date('2024-05-08')", {}
    ).function()
    for scope in (SCOPE, Scope("acme", principals=["user:ann"])):
        found = run(infer(graph, rules, seeds=["pit"], scope=scope))
        assert [each.text for each in found] == ["x", "y"]


def test_the_rows_of_many_documents_are_written_in_one_round_trip(
    graph: Neo4jGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = {"tenant_id": "acme"}
    said = {
        f"d{n}": Contents([GraphNode(f"p{n}", text="", properties=acme)], [mention(f"p{n}", acme)])
        for n in range(20)
    }
    graph.replace_sources({})  # makes the constraint
    write = Mock(wraps=graph.connection.write)
    monkeypatch.setattr(graph.connection, "write", write)
    for _ in range(2):
        graph.replace_sources(said)
    assert write.call_count == 2
    nodes, edges = graph.contents(scope=Scope("acme"))
    assert (len(nodes), len(edges)) == (21, 20)


def mention(passage: str, properties: dict[str, str]) -> Edge:
    return Edge.of(passage, "MENTIONS", "crane", properties)


def test_rows_written_in_several_batches_equal_those_of_one_batch(
    graph: Neo4jGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llama_retrieval_ext.graph.neo4j._BATCH", 2)
    things = [GraphNode(f"n{number}", "Thing") for number in range(4)]
    nodes = [*things, *(GraphNode(f"n{number}", CHUNK_LABEL, text="x") for number in range(4, 8))]
    edges = [Edge.of(a.id, "R", b.id) for a in nodes for b in nodes if a != b]
    graph.upsert(nodes, edges, source="d")
    found = graph.claims_of(["d"])["d"]
    assert sorted((node.id, node.label, node.text) for node in found.nodes) == [
        (node.id, node.label, node.text) for node in nodes
    ]
    assert {edge.id for edge in found.edges} == {edge.id for edge in edges}
    graph.delete_sources(["d"], scope=None)
    assert graph.contents(scope=None) == Contents([], [])


def test_the_cost_of_a_load_is_linear_in_its_edges_also_at_hubs_and_in_an_empty_database(
    graph: Neo4jGraph, neo4j_url: str
) -> None:
    graph.replace_sources({})  # makes the constraint
    with neo4j.GraphDatabase.driver(neo4j_url) as driver, driver.session() as session:

        def hits_of_two_loads(leaves: int) -> list[int]:
            graph.clear(scope=None)
            session.run("CALL db.clearQueryCaches()").consume()
            to_leaves = [Edge.of("source", "R", f"leaf{n}") for n in range(leaves)]
            from_leaves = [Edge.of(f"leaf{n}", "R", "target") for n in range(leaves)]
            rows = batch_rows({"d": Contents([], to_leaves + from_leaves)})
            query: Any = f"PROFILE {REPLACE}"  # the driver expects a literal
            return [db_hits(session.run(query, rows).consume().profile) for _ in range(2)]

        first, again = zip(hits_of_two_loads(100), hits_of_two_loads(200), strict=True)
    assert first[1] < 2.2 * first[0]
    assert again[1] < 2.2 * again[0]


def db_hits(plan: Any) -> int:
    own: int = plan["args"].get("DbHits", 0)
    return own + sum(db_hits(child) for child in plan.get("children", []))


def test_concurrent_writers_of_a_row_all_support_it(graph: Neo4jGraph) -> None:
    said = {
        f"d{n}": Contents(
            [GraphNode(f"p{n}", text=""), GraphNode("shared", "Thing", f"name {n}")],
            [Edge.of("shared", "NEAR", "other", {"of": n})],
        )
        for n in range(10)
    }

    def write(document: str) -> None:
        graph.replace_sources({document: said[document]})

    def rewrite(document: str) -> None:
        write(document)
        graph.delete_sources([document], scope=None)

    with ThreadPoolExecutor(5) as writers:
        list(writers.map(write, said))
        found = graph.claims_of([*said])
        assert [len(own.nodes) for own in found.values()] == [2] * len(said)
        assert [len(own.edges) for own in found.values()] == [1] * len(said)
        assert len(graph.contents(scope=None).edges) == 1
        list(writers.map(rewrite, said))
    assert graph.contents(scope=None) == Contents([], [])


@pytest.mark.parametrize(
    ("stored", "others"), [(False, ["right"]), (True, ["right"]), (True, None)]
)
def test_the_last_of_concurrent_writers_of_a_document_leaves_nothing_of_the_first(
    graph: Neo4jGraph, neo4j_url: str, others: list[str] | None, *, stored: bool
) -> None:
    graph.replace_sources({"d": passage_to([])} if stored else {})
    with (
        neo4j.GraphDatabase.driver(neo4j_url) as driver,
        driver.session() as session,
        ThreadPoolExecutor(1) as writer,
    ):
        first = session.begin_transaction()
        query: Any = REPLACE  # the driver expects a literal
        first.run(query, batch_rows({"d": passage_to(["left"])})).consume()
        if others is None:
            last = writer.submit(graph.delete_sources, ["d"], scope=None)
        else:
            last = writer.submit(graph.replace_sources, {"d": passage_to(others)})
        wait([last], timeout=0.5)  # for the first
        first.commit()
        last.result()
    expected = others or []
    assert [name for name, _ in graph.names()] == expected
    found = graph.claims_of(["d"])["d"]
    assert [edge.target for edge in found.edges] == expected
    assert len(found.nodes) == bool(expected)


def passage_to(entities: list[str]) -> Contents:
    edges = [Edge.of("passage", "MENTIONS", entity) for entity in entities]
    return Contents([GraphNode("passage", CHUNK_LABEL, text="")], edges)


def test_deletions_create_no_constraint_and_no_index(graph: Neo4jGraph, neo4j_url: str) -> None:
    graph.connection.write("DROP CONSTRAINT llama_retrieval_key IF EXISTS", {}).function()
    listed = "SHOW CONSTRAINTS YIELD name WHERE name = 'llama_retrieval_key' RETURN name"
    with Neo4jGraph.open(neo4j_url) as other:
        other.clear(scope=None)
        other.delete_sources(["d"], scope=None)
        assert graph.read(listed, {}) == []
        other.upsert([])
        assert graph.read(listed, {}) == [{"name": "llama_retrieval_key"}]


# The driver itself retries for two seconds. An index has been created by two first writers at once.
@pytest.mark.filterwarnings("ignore:Neo4jError.hydrate")
@pytest.mark.parametrize(
    ("code", "seconds"),
    [
        ("Neo.TransientError.Transaction.DeadlockDetected", 4),
        ("Neo.ClientError.Schema.EquivalentSchemaRuleAlreadyExists", 0.1),
    ],
)
def test_a_write_that_other_writers_make_fail_is_tried_again(
    graph: Neo4jGraph, code: str, seconds: float
) -> None:
    end = time.monotonic() + seconds

    def fails(_: Rows) -> None:
        if time.monotonic() < end:
            raise Neo4jError.hydrate(code=code, message="another writer")

    graph.connection.write("CREATE (:__Node__ {id: 'new'})", {}, fails).function()
    assert [node.id for node in graph.contents(scope=None).nodes] == ["new"]


def test_a_write_whose_row_is_deleted_meanwhile_is_tried_again(graph: Neo4jGraph) -> None:
    gone: list[Statement] = [("MATCH (n:__Node__) DELETE n SET n:Gone", {})]
    create = "CREATE (:__Node__ {id: 'new'})"
    write = graph.connection.write(create, {}, lambda _: gone.pop() if gone else None)
    write.function()
    assert [node.id for node in graph.contents(scope=None).nodes] == ["new"]


def test_many_retrievers_share_one_store_of_llamaindex(graph: Neo4jGraph, neo4j_url: str) -> None:
    module = pytest.importorskip("llama_index.graph_stores.neo4j")
    graph.upsert(
        [GraphNode(name, "Hazard", name) for name in ("pit", "flood", "rain")],
        [Edge.of("pit", "HAS_HAZARD", name) for name in ("flood", "rain")],
    )
    store = module.Neo4jPropertyGraphStore(username="", password="", url=neo4j_url)
    with closing(store), ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            retrievers = [KGRetriever(store) for _ in range(4)]
            answers = [*pool.map(lambda each: each.search("pit"), retrievers)]
            answers.append(asyncio.run(KGRetriever(store).asearch("pit")))
            assert [len(answer) for answer in answers] == [2] * 5
            assert not any(answer.degraded for answer in answers)
            graph_of(store).close()  # which the others over the store outlive
    ended = weakref.ref(Neo4jGraph.from_store(store).connection)
    del retrievers, store
    gc.collect()
    assert ended() is None
