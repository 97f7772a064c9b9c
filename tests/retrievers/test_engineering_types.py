"""Processes that a graph lists for a type of engineering."""

from collections.abc import Iterator

import pytest

from llama_retrieval_ext import KGRetriever, KGRuleRetriever, KnowledgeRetriever, RetrievalItem
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.samples.construction_safety import open_construction_safety


@pytest.fixture(scope="module")
def rules() -> Iterator[KGRuleRetriever]:
    graph, rules = open_construction_safety()
    with graph:
        yield KGRuleRetriever(graph, rules)


def texts(items: list[RetrievalItem]) -> list[str]:
    return [item.content for item in items]


def test_the_engineering_type_alone_selects_its_processes(rules: KGRuleRetriever) -> None:
    knowledge = KnowledgeRetriever(rules=rules)
    metro, hydraulic = (knowledge.retrieve_regulations(name) for name in ("地铁", "水利"))
    assert {item.metadata["process"] for item in metro} >= {"深基坑开挖", "盾构掘进"}
    assert "爆破作业" in {item.metadata["process"] for item in hydraulic}
    assert texts(metro) != texts(hydraulic)
    searched = knowledge.search("有哪些要求", engineering_type="地铁").regulations
    assert texts(searched) == texts(metro)
    assert knowledge.retrieve_regulations("no such type") == knowledge.retrieve_regulations() == []


def test_the_engineering_type_narrows_the_processes(rules: KGRuleRetriever) -> None:
    knowledge = KnowledgeRetriever(rules=rules)
    both = ["深基坑开挖", "爆破作业", "焊接作业"]
    found = knowledge.retrieve_regulations("水利", both)
    assert {item.metadata["process"] for item in found} == {"爆破作业", "焊接作业"}
    assert knowledge.retrieve_regulations(processes=["爆破作业"])


def test_a_process_lists_its_engineering_types_in_a_property() -> None:
    with EmbeddedGraph(":memory:") as graph:
        for process, types in (
            ("pile", ["bridge"]),
            ("lining", ["tunnel", "bridge"]),
            ("fence", []),
        ):
            node = GraphNode(process, "Process", properties={"engineering_types": types})
            graph.upsert([node], [Edge(process, "HAS_HAZARD", f"{process} falls")])
        knowledge = KnowledgeRetriever(rules=KGRetriever(graph))
        assert len(knowledge.retrieve_regulations("bridge")) == 2
        (only,) = knowledge.retrieve_regulations("tunnel", ["pile", "lining"])
        assert "lining falls" in only.content
        assert len(knowledge.retrieve_regulations("tunnel", ["pile", "fence"])) == 1
