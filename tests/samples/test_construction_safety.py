# ruff: noqa: RUF001 - Chinese has its own punctuation
"""The sample graph is whole, bilingual, and answers by its rules in milliseconds."""

import pytest

from llama_retrieval_ext import KGRetriever, KGRuleRetriever
from llama_retrieval_ext.samples.construction_safety import (
    construction_safety,
    open_construction_safety,
)
from llama_retrieval_ext.samples.regulations import zh_safety_laws
from tests.cases import cases


@pytest.mark.slow
def test_every_edge_has_its_ends_and_every_entity_two_names() -> None:
    nodes, edges = construction_safety()
    ids = {node.id for node in nodes}
    assert len(edges) >= 150
    assert len(ids) == len(nodes)
    assert {end for edge in edges for end in (edge.source, edge.target)} <= ids
    assert {node.label for node in nodes} == {
        *("Process", "Hazard", "Equipment", "Measure", "EmergencyMeasure", "QualityPoint"),
        *("EngineeringType", "text_chunk"),
    }
    entities = [node for node in nodes if not node.is_passage]
    assert all(len(node.names) > 1 and node.properties["name_en"].isascii() for node in entities)
    touched = {end for edge in edges for end in (edge.source, edge.target)}
    assert touched == ids


def test_texts_of_the_sample_graph_are_articles_of_the_regulations() -> None:
    laws = {law.doc_id: law.text for law in zh_safety_laws()}
    passages = [node for node in construction_safety()[0] if node.is_passage]
    assert passages
    assert all(laws[node.id] == node.text for node in passages)


@pytest.mark.slow
@cases(
    ("question", "measure", "proof"),
    [
        (
            "Which measures does deep foundation pit excavation require?",
            (
                "deep foundation pit excavation requires pit bracing and retaining "
                "against pit collapse"
            ),
            "deep foundation pit excavation -HAS_HAZARD-> pit collapse",
        ),
        (
            "深基坑开挖需要哪些安全措施？",
            "深基坑开挖存在基坑坍塌危险，须采取措施：设置基坑支护",
            "深基坑开挖 -存在危险-> 基坑坍塌",
        ),
    ],
)
def test_measures_of_deep_pits_in_both_languages_with_proofs(
    question: str, measure: str, proof: str
) -> None:
    graph, rules = open_construction_safety()
    with graph:
        retriever = KGRuleRetriever(graph, rules)
        result = retriever.search(question)
        kinds = [hit.metadata["kind"] for hit in result]
        measures = [hit for hit in result if hit.metadata["kind"] == "measure"]
        assert kinds[: len(measures)] == ["measure"] * len(measures)
        (hit,) = [hit for hit in result if hit.text == measure]
        assert proof in [str(edge) for edge in hit.proof]


def test_a_hazard_without_a_measure_is_a_finding() -> None:
    graph, rules = open_construction_safety()
    with graph:
        texts = [hit.text for hit in KGRuleRetriever(graph, rules).search("blasting")]
        assert "blasting has the hazard noise, against which the graph names no measure" in texts
        hazards = dict(KGRetriever(graph).requirements("爆破作业").hazards)
        assert hazards["噪声危害"] == ()
        assert "佩戴防尘口罩" in hazards["粉尘危害"]
