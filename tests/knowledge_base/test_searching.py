"""Searching a knowledge base in one call."""

from typing import Any

import pytest
from llama_index.core.callbacks import LlamaDebugHandler
from llama_index.core.schema import Document
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext import Collapse, HybridRetriever, KnowledgeBase, Scope
from llama_retrieval_ext.hits import node_ids

YEAR = MetadataFilters.from_dicts([{"key": "year", "value": 2024}])


@pytest.fixture
def filled(kb: KnowledgeBase) -> KnowledgeBase:
    kb.add(
        [
            Document(id_=f"{year}{n}", text=f"annual leave {n}", metadata={"year": year})
            for year in (2023, 2024)
            for n in range(4)
        ],
        show_progress=False,
    )
    return kb


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
async def test_search_and_asearch_give_the_hits_of_the_retriever(
    filled: KnowledgeBase, mode: Any
) -> None:
    options: dict[str, Any] = {"top_k": 3, "filters": YEAR, "collapse": Collapse()}
    expected = filled.retriever(mode, **options).search("leave")
    assert node_ids(filled.search("leave", mode, timeout_s=5, **options).hits) == node_ids(
        expected.hits
    )
    assert node_ids((await filled.asearch("leave", mode, **options)).hits) == node_ids(
        expected.hits
    )
    assert {hit.metadata["year"] for hit in expected.hits} == {2024}
    assert filled.search("leave", mode, scope=Scope("acme")).hits == []


def test_retrievers_with_the_same_arguments_share_no_state_that_can_change(
    filled: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    # LlamaIndex would give both the handlers of its settings.
    monkeypatch.setattr("llama_index.core.Settings._callback_manager", None)
    first = filled.retriever(top_k=3, name="mine", scope=Scope("acme"))
    first.callback_manager.add_handler(LlamaDebugHandler())
    first.object_map["x"] = first
    first.top_k = 1
    second = filled.retriever(top_k=3)
    assert (second.name, second.scope, second.top_k) == ("hybrid", None, 3)
    assert not second.callback_manager.handlers
    assert second.object_map == {}
    assert "mine" in repr(first)
    assert "mine" not in repr(second)


def test_changed_weights_of_a_hybrid_are_its_own(filled: KnowledgeBase) -> None:
    first, second = _hybrid(filled), _hybrid(filled)
    weights, languages = dict(second.weights), dict(second.leg_languages)
    first.weights["vector"] = 0.0
    first.leg_languages["vector"] = ("en",)
    for other in (second, _hybrid(filled)):
        assert (other.weights, other.leg_languages) == (weights, languages)


def _hybrid(kb: KnowledgeBase) -> HybridRetriever:
    made = kb.retriever("hybrid")
    assert isinstance(made, HybridRetriever)
    return made


def test_a_model_that_failed_for_some_searches_is_called_by_the_next(
    filled: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(type(filled.embed_model), "_get_query_embedding", _fail)
        for _ in range(6):
            assert "the model is down" in filled.search("leave").degraded[0].reason
    assert not filled.search("leave").degraded


def _fail(*_: object) -> list[float]:
    raise ConnectionError("the model is down")
