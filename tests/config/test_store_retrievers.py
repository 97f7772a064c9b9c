"""Retrievers over a store, and composites of named retrievers."""

from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.schema import TextNode

from llama_retrieval_ext import KnowledgeBase, Query, Scope, branches, open_store
from llama_retrieval_ext.config import Registry, from_yaml, to_yaml
from llama_retrieval_ext.config.store_retrievers import KeptBM25Retriever, weighted_sum
from llama_retrieval_ext.errors import ConfigurationError, StoreClosedError, StoreError
from llama_retrieval_ext.retrievers import KnowledgePolicy
from llama_retrieval_ext.samples.construction_safety import open_construction_safety
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever
from tests.cases import cases
from tests.config.conftest import ask, fill

TEXTS = ("leave leave leave", "annual leave in full and part time", "leave for parents", "lunch")


@cases("top_k", [2, 7])
def test_scores_of_llama_bm25_reach_from_0_to_1_over_the_hits_of_a_query(top_k: int) -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        kb.add([Document(text=text) for text in TEXTS], show_progress=False)
        hits = KeptBM25Retriever(kb).retrieve(Query("leave", top_k=top_k))
        scores = [hit.score or 0.0 for hit in hits]
        assert len(hits) == min(top_k, 3)
        assert scores == sorted(scores, reverse=True)
        assert (scores[0], scores[-1]) == (1.0, 0.0)
        (single,) = KeptBM25Retriever(kb).retrieve("lunch")
        assert single.score == 1.0


def test_a_weighted_sum_takes_cosines_as_they_are_and_bm25_min_max() -> None:
    dense, bm25 = FakeRetriever([("a", 0.57, "x")]), FakeRetriever([("a", 3.18, "x")])
    fused = branches(dense=dense, bm25=bm25) >> weighted_sum(0.7, 0.3)
    (hit,) = fused.retrieve("x")
    assert hit.score == pytest.approx(0.699)


@pytest.mark.parametrize(
    ("name", "params"), [("llama_hybrid", {}), ("fusion", {"mode": "weighted"})]
)
def test_weighted_names_add_the_cosine_and_the_normalised_bm25_score(
    registry: Registry, name: str, params: dict[str, Any]
) -> None:
    query = Query("annual leave", scope=Scope("acme"), top_k=1)
    (cosine,) = registry.get_retriever("dense").retrieve(query)
    (hit,) = registry.get_retriever(name, **params).retrieve(query)
    assert hit.score == pytest.approx(0.7 * (cosine.score or 0) + 0.3)


def test_llama_dense_reads_a_store_of_its_own(registry: Registry, tmp_path: Path) -> None:
    url, model = f"embedded:{tmp_path / 'store'}", FakeEmbedding()
    with open_store(url) as store:
        node = TextNode(text="parental leave", embedding=model.get_text_embedding("leave"))
        store.add([node])
    made = registry.get_retriever("llama_dense", store_params={"url": url})
    assert [hit.text for hit in made.retrieve("leave")] == ["parental leave"]
    registry.close()
    with pytest.raises(StoreClosedError):
        made.retrieve("leave")


@pytest.mark.parametrize("url", ["milvus:{}/kb.db", "embedded:{}/kb", "qdrant:{}/kb"])
def test_llama_dense_opens_a_store_by_the_url_of_each_engine(
    registry: Registry, tmp_path: Path, url: str
) -> None:
    with pytest.raises((StoreError, ConfigurationError), match="there is no"):
        registry.get_retriever("llama_dense", store_params={"url": url.format(tmp_path)})


def test_bm25_in_memory_is_kept_by_scope_and_read_again() -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        fill(kb)
        check_keeping(kb)


def check_keeping(kb: KnowledgeBase) -> None:
    kept = KeptBM25Retriever(kb, max_chunks=3, cache_ttl=0.05, top_k=9)
    acme = kept.for_scope(Scope("acme"))
    assert {hit.text[:4] for hit in acme.retrieve("annual sick lunch code")} == {"acme"}
    assert len(acme.retrieve("annual sick lunch code")) == 3
    (degraded,) = acme.search("leave").degraded
    assert "1 are left out" in degraded.reason
    lasting = KeptBM25Retriever(kb, cache_ttl=3600)
    assert lasting.retrieve("vacancy") == []
    assert kept.retrieve("vacancy") == []
    kb.add([Document(text="globex: vacancy", id_="0")], scope=Scope("globex"), show_progress=False)
    assert lasting.retrieve("vacancy") == []
    fresh = KeptBM25Retriever(kb)
    assert [hit.text for hit in fresh.retrieve("vacancy")] == ["globex: vacancy"]


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


@pytest.mark.slow
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
