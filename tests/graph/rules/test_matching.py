"""One pattern, two compilers: the traversal finds what Cypher finds, cycles included."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from llama_index.core.graph_stores.simple_labelled import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import EntityNode, Relation
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import RuleError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import Direction, Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.open import graph_of, open_graph
from llama_retrieval_ext.graph.rules.matching import find_matches, plan_matchable
from llama_retrieval_ext.graph.rules.rule import FromContext, Match, Pattern, RuleValue, Step, Where
from llama_retrieval_ext.graph.rules.yaml import parse_rules
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.graph_contract import answer
from tests.cases import cases
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]

SCOPE = Scope("acme")
TYPES, LABELS = ("A", "B", "C"), ("X", "Y")


def found(
    graph: GraphBackend,
    pattern: Pattern,
    seeds: Sequence[str] | None = None,
    context: Mapping[str, object] | None = None,
    scope: Scope = SCOPE,
) -> list[Match]:
    values = context or {}
    own = run(plan_matchable(graph, [pattern], seeds=seeds, context=values, scope=scope))
    matches = find_matches(own, pattern, seeds=seeds, context=values, scope=scope)
    return matches.function()


@pytest.fixture
def cycle() -> Iterator[EmbeddedGraph]:
    with EmbeddedGraph(":memory:") as graph:
        acme = {"tenant_id": "acme"}
        graph.upsert([], [Edge.of(s, "A", t, acme) for s, t in ("ab", "bc", "ca")])
        yield graph


def test_a_repeated_step_uses_no_edge_twice(cycle: EmbeddedGraph) -> None:
    pattern = Pattern("x", steps=(Step("x", ("A",), "y", hops=(1, 5)),))
    assert [match.ids for match in found(cycle, pattern, ["a"])] == [
        ("a", "a"),
        ("a", "b"),
        ("a", "c"),
    ]


def test_two_steps_use_no_edge_twice(cycle: EmbeddedGraph) -> None:
    steps = (Step("x", ("A",), "y"), Step("y", ("A",), "z", Direction.ANY))
    assert [m.ids for m in found(cycle, Pattern("x", steps=steps), ["a"])] == [("a", "b", "c")]


def test_a_step_to_a_bound_variable_closes_a_ring(cycle: EmbeddedGraph) -> None:
    ring = (Step("x", ("A",), "y"), Step("y", ("A",), "z"), Step("z", ("A",), "x"))
    assert len(found(cycle, Pattern("x", steps=ring), ["a"])) == 1


def test_an_optional_step_that_is_not_there_binds_nothing(cycle: EmbeddedGraph) -> None:
    steps = (Step("x", ("A",), "y"), Step("y", ("NO",), "z", optional=True))
    (match,) = found(cycle, Pattern("x", steps=steps), ["a"])
    assert match.ids == ("a", "b", None)
    assert [len(edges) for edges in match.proof] == [1, 0]


def test_an_exclusion_drops_matches(cycle: EmbeddedGraph) -> None:
    pattern = Pattern("x", steps=(Step("x", ("A",), "y"),), unless=(Step("y", ("A",), "z"),))
    assert found(cycle, pattern) == []
    other = replace(pattern, unless=(Step("y", ("NO",), "z"),))
    assert len(found(cycle, other)) == 3


def test_a_value_the_context_lacks_makes_a_condition_false(cycle: EmbeddedGraph) -> None:
    where = (Where("y", "name", FilterOperator.NE, FromContext("area")),)
    pattern = Pattern("x", steps=(Step("x", ("A",), "y"),), where=where)
    assert len(found(cycle, pattern, ["a"], {"area": "z"})) == 1
    assert found(cycle, pattern, ["a"], {}) == []


@cases(
    ("since", "ids"),
    [("2024-01-31T08:00Z", ["b"]), ("2024-01-31", ["a", "b"]), ("recently", []), (3, ["d"])],
)
def test_a_rule_compares_dates_by_time(since: object, ids: list[str]) -> None:
    where = (Where("x", "day", FilterOperator.GTE, FromContext("since")),)
    days = {"a": "2024-01-31", "b": "2024-01-31T09:00+01:00", "c": "2024-01-30", "d": 20240201}
    with EmbeddedGraph(":memory:") as graph:
        nodes = [GraphNode(id_, "X", id_, {"day": day}) for id_, day in days.items()]
        graph.upsert(nodes, [])
        matches = answer(
            find_matches(
                graph, Pattern("x", where=where), seeds=None, context={"since": since}, scope=None
            )
        )
    assert [match.ids[0] for match in matches] == ids


def test_chained_rules_match_what_is_stored_and_what_is_concluded(cycle: EmbeddedGraph) -> None:
    rules = parse_rules(
        "rules:\n"
        "  - {id: two, match: [{node: a}, {follow: A, node: b}, {follow: A, node: c}], then: x,"
        " confidence: 0.5, concludes: {from: a, relation: TWO, to: c}}\n"
        "  - {id: back, match: [{node: x}, {follow: TWO, direction: in, node: y}], then: x,"
        " confidence: 0.5}\n"
    )
    stored, concluded = [way for way in rules.variants if way.rule is rules.rules[1]]
    assert found(cycle, stored.pattern) == []
    assert (concluded.chain, concluded.confidence) == (("back", "two"), 0.25)
    (match,) = found(cycle, concluded.pattern, ["a"])
    assert match.ids[0] == "a"
    assert [e.id for step in match.proof for e in step] == [("c", "A", "a"), ("b", "A", "c")]


@pytest.mark.slow
def test_a_pattern_with_too_many_matches_is_stopped() -> None:
    with EmbeddedGraph(":memory:") as graph:
        acme = {"tenant_id": "acme"}
        edges = [Edge.of(f"{a}", "A", f"{b}", acme) for a in range(12) for b in range(12)]
        graph.upsert([], edges)
        pattern = Pattern("x", steps=(Step("x", ("A",), "y", hops=(6, 6)),))
        with pytest.raises(RuleError, match="more than 10000 matches"):
            found(graph, pattern)
        where = (Where("y", "name", FilterOperator.EQ, "nobody"),)
        with pytest.raises(RuleError, match="looks at more than"):
            found(graph, replace(pattern, where=where))


def random_graph(rng: random.Random) -> tuple[list[GraphNode], list[Edge]]:
    """A dense little graph of two tenants, with loops and cycles."""
    ids = [f"n{at}" for at in range(7)]
    nodes, edges = [], []
    for tenant in ("acme", "globex"):
        for id_ in ids:
            properties: dict[str, object] = {"tenant_id": tenant}
            if rng.random() < 0.8:
                plain = [1, 2, 2.0, "2", True, None, ["p", "q"], [], "pq"]
                mixed = [["p", 2, True], [2, None], [["p"]], {"p": 2}, [{"p": 2}]]
                properties["k"] = rng.choice([*plain, *plain, *plain, *mixed])
            nodes.append(GraphNode(id_, rng.choice(LABELS), f"name {id_}", properties))
        for _ in range(14):
            ends = rng.choice(ids), rng.choice(ids)
            edges.append(Edge.of(ends[0], rng.choice(TYPES), ends[1], {"tenant_id": tenant}))
    return nodes, edges


def random_pattern(rng: random.Random) -> Pattern:
    steps: list[Step] = []
    sure, names = ["v0"], ["v0"]
    for at in range(1, rng.randint(1, 4)):
        optional = rng.random() < 0.3
        source = rng.choice(names if optional else sure)
        fresh = optional or rng.random() < 0.85
        target = f"v{at}" if fresh else rng.choice(sure)
        steps.append(random_step(rng, source, target, optional=optional))
        names.append(target)
        if not optional:
            sure.append(target)
    unless = [random_step(rng, rng.choice(sure), "w")] if rng.random() < 0.4 else []
    names += [step.target for step in unless]
    named = [*dict.fromkeys(names)]
    labels = tuple((name, rng.choice(LABELS)) for name in named if rng.random() < 0.3)
    where = tuple(random_where(rng, name) for name in named if rng.random() < 0.25)
    ordered = sorted(steps, key=lambda step: step.optional)
    return Pattern("v0", labels, tuple(ordered), tuple(unless), where)


def random_step(rng: random.Random, source: str, target: str, *, optional: bool = False) -> Step:
    types = tuple(rng.sample(TYPES, rng.randint(1, 2)))
    least = rng.choice([1, 1, 1, 2])
    hops = (least, least + rng.choice([0, 0, 1]))
    return Step(source, types, target, rng.choice(list(Direction)), hops, optional)


def random_where(rng: random.Random, name: str) -> Where:
    choices: list[tuple[FilterOperator, RuleValue]] = [
        (FilterOperator.EQ, 2),
        (FilterOperator.NE, "2"),
        (FilterOperator.GTE, 2),
        (FilterOperator.LT, 2),
        (FilterOperator.IN, (1, "2")),
        (FilterOperator.NIN, (2,)),
        (FilterOperator.ANY, ("p", "z")),
        (FilterOperator.ALL, ("p", "q")),
        (FilterOperator.CONTAINS, "p"),
        (FilterOperator.TEXT_MATCH, "p"),
        (FilterOperator.TEXT_MATCH_INSENSITIVE, "PQ"),
        (FilterOperator.IS_EMPTY, None),
    ]
    operator, value = rng.choice(choices)
    return Where(name, "k", operator, value)


def random_graphs(
    number: int, rng: random.Random, url: str
) -> Iterator[tuple[EmbeddedGraph, GraphBackend]]:
    """Random graphs, each embedded and in Neo4j."""
    with closing(open_graph(url)) as graph:
        for _ in range(number):
            nodes, edges = random_graph(rng)
            graph.clear(scope=None)
            graph.upsert(nodes, edges)
            with EmbeddedGraph(":memory:") as embedded:
                embedded.upsert(nodes, edges)
                yield embedded, graph


@pytest.mark.slow
def test_traversal_and_cypher_agree_on_random_graphs(neo4j_url: str) -> None:
    rng = random.Random(17)
    total = 0
    for embedded, graph in random_graphs(2, rng, neo4j_url):
        for number in range(7):
            pattern = random_pattern(rng)
            seeds = rng.choice([None, ["n0", "n3"]])
            mine = outcome(embedded, pattern, seeds)
            # Neo4j plans each statement for a second: the scopes take turns.
            scope = [SCOPE, Scope("acme", principals=["user:ann"])][number % 2]
            assert mine == outcome(graph, pattern, seeds, scope), (pattern, scope)
            total += len(mine)
    assert total > 100


def outcome(
    graph: GraphBackend, pattern: Pattern, seeds: list[str] | None, scope: Scope = SCOPE
) -> list[object]:
    try:
        matches = found(graph, pattern, seeds, scope=scope)
    except RuleError as error:
        return [str(error)]
    return [(m.ids, [[edge.id for edge in step] for step in m.proof]) for m in matches]


@pytest.mark.slow
def test_a_store_that_only_lists_rows_gives_the_matches_of_the_embedded_graph() -> None:
    rng, total = random.Random(5), 0
    for _ in range(20):
        every, links = random_graph(rng)
        nodes = [node for node in every if node.properties["tenant_id"] == "acme"]
        edges = [edge for edge in links if edge.properties["tenant_id"] == "acme"]
        pattern, seeds = random_pattern(rng), rng.choice([None, ["n0", "n3"]])
        store = SimplePropertyGraphStore()
        store.upsert_nodes([node.to_llama_index() for node in nodes])
        store.upsert_relations([edge.to_llama_index() for edge in edges])
        with EmbeddedGraph(":memory:") as embedded:
            embedded.upsert(nodes, edges)
            mine = outcome(embedded, pattern, seeds)
        assert mine == outcome(graph_of(store), pattern, seeds)
        total += len(mine)
    assert total > 30


def test_an_exclusion_between_bound_nodes_leaves_other_exclusions_in_force() -> None:
    store = SimplePropertyGraphStore()
    store.upsert_nodes([EntityNode(name=name) for name in "abc"])
    store.upsert_relations(
        [Relation(label=label, source_id=s, target_id=t) for s, label, t in ("aAb", "bBc")]
    )
    apart = Step("x", ("C",), "y")
    pattern = Pattern("x", (), (Step("x", ("A",), "y"),), (apart, Step("y", ("B",), "z")))
    assert found(
        graph_of(store), replace(pattern, unless=(apart,)), ["a"], scope=Scope(principals=[])
    )
    assert found(graph_of(store), pattern, ["a"], scope=Scope(principals=[])) == []


def test_dates_in_the_context_and_rules_that_it_excludes_read_no_rows(cycle: EmbeddedGraph) -> None:
    # Reading rows would raise.
    store: Any = SimpleNamespace(plan_read=find_matches, plan_has_dates=lambda: Call(bool))
    by_chapter = Where(None, "chapter", value="safety")
    since = Where("x", "day", FilterOperator.GTE, "2024-01-31")
    patterns = [
        Pattern("x", where=(Where(None, "day", FilterOperator.GTE, "2024-01-31"),)),
        Pattern("x", where=(by_chapter, since)),
    ]
    context = {"day": "2024-02-01", "chapter": "quality"}
    plan = plan_matchable(store, patterns, seeds=None, context=context, scope=SCOPE)
    assert run(plan) is store
    pattern = Pattern("x", steps=(Step("x", ("A",), "y"),), where=(by_chapter,))
    assert found(cycle, pattern, ["a"], context) == []
    assert len(found(cycle, pattern, ["a"], {"chapter": "safety"})) == 1
