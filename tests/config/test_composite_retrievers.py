"""Names of retrievers that are made of others."""

from llama_retrieval_ext import KnowledgeBase
from llama_retrieval_ext.config import Registry, from_yaml, to_yaml
from llama_retrieval_ext.retrievers.knowledge_response import KnowledgePolicy
from llama_retrieval_ext.samples.construction_safety import open_construction_safety
from tests.config.conftest import ask


def test_composites_contain_the_named_retrievers(registry: Registry) -> None:
    base = registry.get_retriever("bm25", top_k=7)
    reranked = registry.get_retriever("rerank", base_retriever=base, fetch_k=9, top_k=2)
    assert vars(reranked)["retriever"] is base
    fallback = registry.get_retriever("fallback", retrievers=[base, "dense"], enough=2)
    assert next(iter(vars(fallback)["legs"])).retriever is base
    router = registry.get_retriever("router", routes={"exact": "bm25", "general": base})
    (hit, *_) = ask(registry.get("retriever", "router")(), "E1205")
    assert hit["source"] == "bm25"
    assert [hit.text for hit in router.retrieve("what is at noon?")]
    fused = registry.get_retriever("fusion", mode="weighted", rerank=True, top_k=2)
    assert len(fused.retrieve("leave")) == 2


def test_knowledge_takes_chapter_type_processes_and_a_policy(kb: KnowledgeBase) -> None:
    graph, rules = open_construction_safety()
    registry = Registry().bind(kb, graph=graph, rules=rules)
    make = registry.get("retriever", "knowledge")
    named = {"tenant_id": None, "kb_ids": None, "top_k": 30}
    operator = make(chapter="safety", processes=["blasting"])
    assert any("proof" in record for record in ask(operator, "requirements", **named))
    assert not ask(make(chapter="costs", processes=["blasting"]), "requirements", **named)
    every_case = make(policy=KnowledgePolicy(case_threshold=0.0), chapter="costs")
    assert {record["source"] for record in ask(every_case, "leave", **named)} == {"vector"}
    text = to_yaml(registry.get_retriever("knowledge", chapter="safety"), live=registry.live)
    assert "chapter: safety" in text
    assert repr(from_yaml(text, registry)) == repr(
        registry.get_retriever("knowledge", chapter="safety")
    )
    graph.close()
