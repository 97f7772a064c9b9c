"""Composites wherever LlamaIndex takes a retriever, and LlamaIndex's composites around them."""

import asyncio
from collections.abc import Callable

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.indices.query.query_transform.base import IdentityQueryTransform
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine, RouterQueryEngine
from llama_index.core.retrievers import (
    AutoMergingRetriever,
    QueryFusionRetriever,
    RecursiveRetriever,
    RouterRetriever,
    TransformRetriever,
)
from llama_index.core.schema import IndexNode
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.storage.storage_context import StorageContext
from llama_index.core.tools import QueryEngineTool, RetrieverTool

from llama_retrieval_ext import RRF, KeywordRetriever, Retriever, Scope, Top, VectorRetriever
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import FallbackRetriever
from llama_retrieval_ext.testing import ScriptedLLM, sample_nodes
from llama_retrieval_ext.testing.fakes import FakeBackend, FakeEmbedding, FakeRetriever
from tests.cases import cases
from tests.retrievers.references import finding

QUERY = "annual leave days"
PICK = '[{"choice": 1, "reason": "it is the one"}]'


@pytest.fixture
def composite() -> Retriever:
    model = FakeEmbedding()
    backend = FakeBackend(sample_nodes(model))
    vector, keyword = VectorRetriever(backend, embed_model=model), KeywordRetriever(backend)
    fused = (vector | keyword) >> RRF() >> Top(3)
    return FallbackRetriever(fused, vector)


@pytest.fixture
def expected(composite: Retriever) -> list[str]:
    found = node_ids(composite.retrieve(QUERY))
    assert len(found) == 3
    return found


def test_a_bound_scope_holds_in_a_query_engine(composite: Retriever) -> None:
    engine = RetrieverQueryEngine.from_args(composite.for_scope(Scope("acme")), llm=MockLLM())
    sources = engine.query(QUERY).source_nodes
    assert {hit.node.metadata["tenant_id"] for hit in sources} == {"acme"}


def test_a_composite_answers_in_a_router_query_engine(
    composite: Retriever, expected: list[str]
) -> None:
    tools = [
        QueryEngineTool.from_defaults(
            RetrieverQueryEngine.from_args(retriever, llm=MockLLM()), description=description
        )
        for retriever, description in ((composite, "leave"), (FakeRetriever(), "nothing"))
    ]
    engine = RouterQueryEngine.from_defaults(
        tools, llm=MockLLM(), selector=LLMSingleSelector.from_defaults(llm=ScriptedLLM([PICK] * 2))
    )
    assert node_ids(engine.query(QUERY).source_nodes) == expected
    assert node_ids(asyncio.run(engine.aquery(QUERY)).source_nodes) == expected


def test_a_composite_answers_in_a_chat_engine(composite: Retriever, expected: list[str]) -> None:
    # LlamaIndex's default memory leaves a database connection open.
    memory = ChatMemoryBuffer.from_defaults(token_limit=1000)
    engine = ContextChatEngine.from_defaults(composite, llm=MockLLM(), memory=memory)
    assert node_ids(engine.chat(QUERY).source_nodes) == expected
    engine.reset()
    assert node_ids(asyncio.run(engine.achat(QUERY)).source_nodes) == expected
    engine.reset()
    assert node_ids(engine.stream_chat(QUERY).source_nodes) == expected


def in_fusion(composite: Retriever) -> BaseRetriever:
    return QueryFusionRetriever(
        [composite],
        llm=MockLLM(),
        num_queries=1,
        similarity_top_k=3,
        mode="reciprocal_rerank",  # type: ignore[arg-type]
    )


def in_router(composite: Retriever) -> BaseRetriever:
    tool = RetrieverTool.from_defaults(composite, description="leave")
    selector = LLMSingleSelector.from_defaults(llm=ScriptedLLM([PICK] * 2))
    return RouterRetriever(selector, [tool], llm=MockLLM())


def in_recursion(composite: Retriever) -> BaseRetriever:
    root = finding(IndexNode(id_="door", text="door", index_id="documents"))
    return RecursiveRetriever("root", {"root": root, "documents": composite})


def in_auto_merging(composite: Retriever) -> BaseRetriever:
    return AutoMergingRetriever(composite, StorageContext.from_defaults())  # type: ignore[arg-type]


def in_transform(composite: Retriever) -> BaseRetriever:
    return TransformRetriever(composite, IdentityQueryTransform())


def as_an_object(composite: Retriever) -> BaseRetriever:
    return finding(IndexNode(id_="door", text="door", index_id="x", obj=composite))


@pytest.mark.slow
@cases("around", [in_fusion, in_router, in_recursion, in_auto_merging, in_transform, as_an_object])
def test_a_composite_works_inside_composites_of_llama_index(
    around: Callable[[Retriever], BaseRetriever], composite: Retriever, expected: list[str]
) -> None:
    theirs = around(composite)
    assert node_ids(theirs.retrieve(QUERY)) == expected
    assert node_ids(asyncio.run(theirs.aretrieve(QUERY))) == expected


def test_a_bound_scope_holds_around_composites_of_llama_index(composite: Retriever) -> None:
    bound = (in_fusion(composite) >> Top(9)).for_scope(Scope("acme"))
    result = bound.search(QUERY)
    assert {hit.node.metadata["tenant_id"] for hit in result.hits} == {"acme"}
    assert result.degraded  # what they found for others was dropped
