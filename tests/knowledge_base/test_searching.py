"""Searching a knowledge base in one call, and in LlamaIndex's words."""

from typing import Any

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.schema import Document
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.stages.selection import Collapse

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


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
async def test_search_is_the_retriever_s_and_so_is_asearch(
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


async def test_llama_index_s_engines_answer_from_its_hits(filled: KnowledgeBase) -> None:
    retriever = filled.as_retriever(similarity_top_k=2, filters=YEAR)
    assert len(retriever.retrieve("annual leave")) == 2
    for make in (filled.as_query_engine, filled.as_chat_engine):
        engine: Any = make(llm=MockLLM(), similarity_top_k=2, filters=YEAR)
        ask, ask_async = (
            (engine.query, engine.aquery)
            if make == filled.as_query_engine
            else (engine.chat, engine.achat)
        )
        for answer in (ask("annual leave?"), await ask_async("annual leave?")):
            assert [node.metadata["year"] for node in answer.source_nodes] == [2024, 2024]


@pytest.mark.parametrize("llm", [None, "gpt-5"])
def test_an_engine_without_an_llm_says_what_to_pass(filled: KnowledgeBase, llm: Any) -> None:
    for make in (filled.as_query_engine, filled.as_chat_engine):
        with pytest.raises(ConfigurationError, match=r"needs llm=, a LlamaIndex LLM"):
            make(llm=llm)
