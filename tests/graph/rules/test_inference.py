"""Rules conclude sentences, each with its proof, its confidence and what is missing."""

import time
from collections.abc import Iterator

import pytest

from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.rules.inference import Conclusion, infer
from llama_retrieval_ext.graph.rules.yaml import parse_rules

RULES = parse_rules("""
rules:
  - id: measures
    kind: safety
    priority: 1
    confidence: 0.9
    match:
      - {node: process, label: Process}
      - {follow: HAS_HAZARD, node: hazard, label: Hazard}
      - {follow: MITIGATES, direction: in, optional: true, node: measure}
    where:
      - {context: chapter, operator: in, value: [safety]}
    then: "{process} requires {measure} against {hazard} (level {hazard.level})"
    missing: unknown
  - id: equipment-hazards
    priority: 2
    confidence: 0.5
    match:
      - {node: process}
      - {follow: USES, node: equipment}
      - {follow: CAUSES, node: hazard}
    then: "{process} brings {hazard}"
    concludes: {from: process, relation: BRINGS, to: hazard}
  - id: brought
    priority: 3
    confidence: 0.5
    match:
      - {node: hazard}
      - {follow: BRINGS, direction: in, node: process}
    then: "{hazard} comes with {process}"
""")


@pytest.fixture
def graph() -> Iterator[EmbeddedGraph]:
    with EmbeddedGraph(":memory:") as graph:
        nodes = [
            GraphNode("p", "Process", "Excavation"),
            GraphNode("h1", "Hazard", "Collapse", {"level": 3}),
            GraphNode("h2", "Hazard", "Flooding"),
            GraphNode("m", "Measure", "shoring"),
        ]
        triples = [("p", "HAS_HAZARD", "h1"), ("p", "HAS_HAZARD", "h2"), ("m", "MITIGATES", "h1")]
        triples += [("p", "USES", "e"), ("e", "CAUSES", "h1")]
        graph.upsert(nodes, [Edge.of(*triple) for triple in triples])
        yield graph


def inferred(graph: EmbeddedGraph, seed: str, **context: object) -> list[Conclusion]:
    return run(infer(graph, RULES, seeds=[seed], context=context))


def test_conclusions_come_with_their_proof_and_say_what_is_missing(graph: EmbeddedGraph) -> None:
    found = inferred(graph, "p", chapter="safety")
    assert [each.text for each in found] == [
        "Excavation requires shoring against Collapse (level 3)",
        "Excavation requires unknown against Flooding (level unknown)",
        "Excavation brings Collapse",
    ]
    assert [str(edge) for edge in found[0].proof] == ["p -HAS_HAZARD-> h1", "m -MITIGATES-> h1"]
    assert dict(found[1].bindings)["measure"] is None


def test_a_rule_uses_what_another_concludes(graph: EmbeddedGraph) -> None:
    (found,) = inferred(graph, "h1")
    assert found.text == "Collapse comes with Excavation"
    assert (found.chain, found.confidence) == (("brought", "equipment-hazards"), 0.25)
    assert {str(edge) for edge in found.proof} == {"p -USES-> e", "e -CAUSES-> h1"}


def test_braces_in_the_name_of_a_node_are_text(graph: EmbeddedGraph) -> None:
    graph.upsert([GraphNode("h1", "Hazard", "{process.__class__}")], [])
    assert inferred(graph, "p")[0].text == "Excavation brings {process.__class__}"


@pytest.mark.slow
def test_rules_bound_to_a_seed_take_milliseconds_in_a_large_graph(graph: EmbeddedGraph) -> None:
    edges = [Edge.of(f"n{at}", "USES", f"n{at * 7 % 5000}") for at in range(20_000)]
    graph.upsert([], edges)
    inferred(graph, "p", chapter="safety")
    times = []
    for _ in range(20):
        start = time.process_time()
        inferred(graph, "p", chapter="safety")
        times.append(time.process_time() - start)
    assert min(times) < 0.02  # three rules and their sentences; a hundred times less is usual
