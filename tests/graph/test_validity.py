"""Facts of a graph: what held and was known when, on both graphs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import KeywordRetriever, Scope, open_graph
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.graph import Edge, GraphNode
from llama_retrieval_ext.graph.backend import WritableGraph
from llama_retrieval_ext.graph.elements import Hop
from llama_retrieval_ext.graph.expansion import expand
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.graph.rules.inference import infer
from llama_retrieval_ext.graph.rules.yaml import parse_rules
from llama_retrieval_ext.retrievers import GraphRetriever, KGRuleRetriever
from llama_retrieval_ext.stores import EmbeddedVectorStore
from tests.graph.facts import Facts, wrong_answers
from tests.servers.neo4j import neo4j_url

__all__ = ["neo4j_url"]

RULES = parse_rules(
    """
rules:
  - id: colleagues
    match:
      - {node: a}
      - {follow: WORKS_AT, node: company}
      - {from: company, follow: WORKS_AT, direction: in, node: b}
    unless:
      - {from: a, follow: LEAVES, node: company}
    then: "{a} and {b} are colleagues at {company}"
  - id: moved
    match:
      - {node: a}
      - {follow: WORKS_AT, node: first}
      - {from: a, follow: WORKS_AT, node: second}
    where:
      - {node: first, holds: before, other: second}
    then: "{a} moved from {first} to {second}"
  - id: early
    match:
      - {node: a}
      - {follow: WORKS_AT, node: company}
    where:
      - {node: company, holds: during, period: [2009-01-01, 2016-01-01]}
    then: "{a} was early at {company}"
"""
)


@pytest.fixture(params=["embedded", pytest.param("neo4j", marks=pytest.mark.slow)])
def graph(request: pytest.FixtureRequest) -> Iterator[WritableGraph]:
    url = "graph::memory:" if request.param == "embedded" else request.getfixturevalue("neo4j_url")
    with open_graph(url, functional=["WORKS_AT"]) as opened:
        opened.clear(scope=None)
        yield opened
        opened.set_functional([])
        opened.clear(scope=None)


def add(graph: WritableGraph, person: str, company: str, start: str, end: str = "") -> None:
    dates = {"valid_from": start, **({"valid_to": end} if end else {})}
    graph.upsert([], [Edge.of(person, "WORKS_AT", company, dates)])


@pytest.mark.slow
def test_facts_agree_with_an_oracle(graph: WritableGraph) -> None:
    assert wrong_answers(graph, Facts(seed=3, count=200), questions=60) == []


def test_a_hidden_fact_closes_nothing(graph: WritableGraph) -> None:
    graph.functional = frozenset(["PAYS"])
    facts = [("acme", "2020-01-01", None), ("beta", "2021-01-01", ["group:hr"])]
    for target, start, allowed in facts:
        properties = {"valid_from": start, "allowed": allowed}
        graph.upsert([], [Edge.of("ann", "PAYS", target, properties)], source=target)
    hr, others = Scope(principals=["group:hr"]), Scope(principals=["user:bob"])
    for scope, target in ((None, "beta"), (hr, "beta"), (others, "acme")):
        (edge,) = graph.neighbours(["ann"], Hop(), scope=scope)["ann"]
        assert edge.target == target
    graph.delete_sources(["beta"], scope=None)
    (edge,) = graph.neighbours(["ann"], Hop(), scope=None)["ann"]
    assert (edge.target, "valid_to" in edge.properties) == ("acme", False)


def test_facts_of_the_same_time_are_all_shown_and_name_each_other(graph: WritableGraph) -> None:
    graph.functional = frozenset(["PAYS"])
    for target in ("beta", "acme"):
        graph.upsert([], [Edge.of("ann", "PAYS", target, {"valid_from": "2021-01-01"})])
    edges = graph.neighbours(["ann"], Hop(), scope=None)["ann"]
    assert {edge.target: edge.properties["contradicts"] for edge in edges} == {
        "acme": ["beta"],
        "beta": ["acme"],
    }


def test_rules_hold_when_all_of_their_proof_does(graph: WritableGraph) -> None:
    add(graph, "ann", "beta", "2015-03-01")
    add(graph, "ann", "acme", "2010-01-01")
    add(graph, "bob", "beta", "2012-01-01", "2020-01-01")
    add(graph, "eve", "acme", "2011-01-01")
    leaves = {"valid_from": "2018-01-01", "valid_to": "2019-01-01"}
    graph.upsert([], [Edge.of("ann", "LEAVES", "beta", leaves)])

    def conclusions(as_of: str) -> list[str]:
        made = run(infer(graph, RULES, seeds=["ann"], scope=Scope(as_of=as_of)))
        return [conclusion.text for conclusion in made if conclusion.rule.id == "colleagues"]

    assert conclusions("2012-01-01") == ["ann and eve are colleagues at acme"]
    assert conclusions("2016-01-01") == ["ann and bob are colleagues at beta"]
    assert conclusions("2018-06-01") == conclusions("2021-01-01") == []
    (moved,) = (c for c in run(infer(graph, RULES, seeds=["ann"])) if c.rule.id == "moved")
    assert (moved.text, moved.validity) == ("ann moved from acme to beta", {})
    assert moved.proof_in_words() == [
        "ann -WORKS_AT-> acme (from 2010-01-01 until 2015-03-01)",
        "ann -WORKS_AT-> beta (from 2015-03-01)",
    ]
    (early,) = KGRuleRetriever(graph, RULES).search("ann", as_of="2014-01-01", top_k=1)
    dates = {"valid_from": "2010-01-01", "valid_to": "2015-03-01"}
    assert early.text in {"ann was early at acme", "ann and eve are colleagues at acme"}
    (hit,) = (
        hit
        for hit in KGRuleRetriever(graph, RULES).search("ann")
        if hit.text.endswith("early at acme")
    )
    assert dates.items() <= hit.node.metadata.items()
    assert hit.validity == "no longer valid since 2015-03-01"


def test_paths_use_what_holds(graph: WritableGraph) -> None:
    add(graph, "ann", "acme", "2010-01-01", "2012-01-01")
    add(graph, "bob", "acme", "2011-01-01")
    assert "bob" not in expand(graph, ["ann"], max_hops=2)
    assert "bob" in expand(graph, ["ann"], max_hops=2, scope=Scope(as_of="2011-06-01"))
    assert len(graph.contents(scope=Scope(as_of="any")).edges) == 2
    (edge,) = graph.claims_of([""])[""].edges[:1]
    assert edge.properties["valid_from"] in {"2010-01-01", "2011-01-01"}


def test_properties_that_begin_like_dates_make_no_fact(graph: WritableGraph) -> None:
    properties = {"known_as": "Annie", "valid_email": "a@b.c"}
    graph.upsert([], [Edge.of("ann", "KNOWS", "bob", properties)])
    (edge,) = graph.neighbours(["ann"], Hop(), scope=None)["ann"]
    assert edge.properties == properties


PRICES = parse_rules(
    """
rules:
  - id: cheap
    match:
      - {node: shop}
      - {follow: SELLS, node: bread}
    where:
      - {node: bread, property: price, operator: "<", value: 4}
    then: "{shop} sells bread for {bread.price}"
"""
)


def test_properties_of_an_entity_are_those_of_the_time(graph: WritableGraph) -> None:
    def write(**properties: object) -> None:
        graph.upsert([GraphNode("bread", "Good", "Bread", properties)], [], source="list")

    def bread(as_of: str = "now", **scope: object) -> dict[str, object]:
        times = Scope(as_of=as_of, **scope)  # type: ignore[arg-type]
        (node,) = graph.contents(["bread"], scope=times).nodes
        assert node == graph.nodes(["bread"], scope=times)["bread"]
        assert (node.label, node.name) == ("Good", "Bread")
        return {key: value for key, value in node.properties.items() if key != "known_from"}

    write(price=5, valid_from="2023-01-01", known_from="2024-01-01")
    write(price=3, valid_from="2021-01-01", valid_to="2025-01-01", known_from="2020-01-01")
    write(price=4, valid_from="2023-01-01", known_from="2022-01-01")  # was corrected
    write(baker="Ann", valid_from="2022-01-01", valid_to="2024-06-01", allowed=["group:hr"])
    write(origin="DE")
    assert bread() == {"origin": "DE", "price": 5, "valid_from": "2023-01-01"}
    assert bread("2020-01-01") == {"origin": "DE"}
    assert bread("2023-06-01") == {
        "origin": "DE",
        "price": 5,
        "baker": "Ann",
        "valid_from": "2023-01-01",
        "valid_to": "2024-06-01",
    }
    assert bread("2023-06-01", known_at="2023-01-01")["price"] == 4
    assert "baker" not in bread("2023-06-01", principals=["user:bob"])
    graph.upsert([], [Edge.of("shop", "SELLS", "bread")], source="shop")
    (cheap,) = run(infer(graph, PRICES, seeds=["shop"], scope=Scope(as_of="2022-01-01")))
    assert cheap.text == "shop sells bread for 3"
    assert cheap.validity["valid_to"] == "2024-06-01"
    assert run(infer(graph, PRICES, seeds=["shop"])) == []
    assert len(graph.claims_of(["list"])["list"].nodes) == 5
    graph.delete_sources(["list"], scope=None)
    assert graph.nodes(["bread"], scope=None)["bread"].properties == {}


@pytest.mark.parametrize("engine", ["embedded", pytest.param("neo4j", marks=pytest.mark.slow)])
def test_functional_relations_are_recorded(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_server = engine == "neo4j"
    url = request.getfixturevalue("neo4j_url") if is_server else f"graph:{tmp_path}"
    with open_graph(url, functional=["WORKS_AT"]) as graph:
        graph.clear(scope=None)
    for at, company in enumerate(("acme", "beta")):
        with open_graph(url) as graph:
            add(graph, "ann", company, f"201{at}-01-01")
    with open_graph(url) as graph:
        assert [edge.target for edge in graph.neighbours(["ann"])["ann"]] == ["beta"]
    with open_graph(url, functional=[]) as graph:
        assert len(graph.neighbours(["ann"])["ann"]) == 2
        graph.clear(scope=None)


def test_a_walk_is_of_the_time_of_its_question() -> None:
    passages = [
        TextNode(id_=id_, text=text, embedding=[1.0, 0.0])
        for id_, text in (("ann", "About Ann."), ("acme", "The firm."), ("beta", "The other."))
    ]
    store = EmbeddedVectorStore(":memory:")
    graph = open_graph("graph::memory:", functional=["WORKS_AT"])
    with store, graph:
        store.add(passages)
        graph.upsert(*passage_rows(passages, PassageLinks()))
        graph.upsert([GraphNode("Ann"), GraphNode("acme inc"), GraphNode("beta inc")], [])
        mentions = [("ann", "Ann"), ("acme", "acme inc"), ("beta", "beta inc")]
        graph.upsert([], [Edge.of(passage, "MENTIONS", entity) for passage, entity in mentions])
        add(graph, "Ann", "acme inc", "2010-01-01")
        add(graph, "Ann", "beta inc", "2015-01-01")
        retriever = GraphRetriever(store, graph=graph, seed=KeywordRetriever(store))
        for as_of, firm in (("2012-01-01", "acme"), (None, "beta"), ("2020-01-01", "beta")):
            result = retriever.search("About Ann", as_of=as_of)
            assert [hit.node_id for hit in result] == ["ann", firm]
