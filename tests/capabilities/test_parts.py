"""Parts of capabilities, and the retrievers that are built from them."""

import re
from collections.abc import Callable

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext.capabilities import CapabilityFactory
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.llm.functions import CallableLLM
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.open import open_store
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM
from tests.capabilities.conftest import cited


def test_presets_have_their_stages(factory: CapabilityFactory, graph_kb: KnowledgeBase) -> None:
    with_graph = CapabilityFactory.of(graph_kb)
    assert factory.create_retriever("basic").name == "basic"
    assert len(factory.create_retriever("basic").stages) == 2
    assert len(factory.create_retriever("semantic").stages) == 4
    advanced = with_graph.create_retriever("advanced", use_graph=True, max_hops=1)
    assert len(advanced.stages) >= 3
    assert "GraphRetriever" in repr(advanced)
    assert {hit.node.node_id for hit in advanced.retrieve("Grundfos pump")} == {"pump", "valve"}
    assert "GraphRetriever" not in repr(with_graph.create_retriever("advanced"))
    assert with_graph.create_retriever("auto", use_graph=True).name == "advanced"
    assert with_graph.create_retriever("auto").name == "advanced"
    assert factory.create_retriever("auto", use_graph=True).name == "advanced"


def test_a_retriever_that_cannot_be_built_is_an_error_with_the_parts_that_there_are(
    factory: CapabilityFactory, graph_kb: KnowledgeBase
) -> None:
    bare = CapabilityFactory(llm=ScriptedLLM([]))
    cases: list[tuple[Callable[[], object], str]] = [
        (bare.create_retriever, "needs vector_store and embed_model; there is llm"),
        (bare.create_rag_generator, "vector_store"),
        (bare.create_memory_manager, "there is llm"),
        (
            lambda: CapabilityFactory(open_store("embedded::memory:")).create_retriever(),
            "embed_model; there is vector_store",
        ),
        (
            lambda: factory.create_retriever("advanced", use_graph=True),
            "needs graph_store; there is",
        ),
        (lambda: factory.create_retriever(use_graph=True), "needs graph_store"),
        (lambda: CapabilityFactory.of(graph_kb).create_retriever(use_graph=True), "does not use"),
        (lambda: factory.create_retriever("advancd"), "did you mean 'advanced'"),
        (lambda: factory.create_retriever("basic", lambda_param=1), "no parameter"),
        (lambda: CapabilityFactory.of(graph_kb).create_rag_generator(), "needs llm=; there is"),
        (lambda: CapabilityFactory(llm=str.upper, llm_caller=str.upper), "two names of one part"),
    ]
    for create, message in cases:
        with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
            create()
        assert isinstance(caught.value, ValueError)


def test_a_vector_store_and_a_docstore_are_parts_of_a_factory() -> None:
    model = FakeEmbedding()
    nodes = [
        TextNode(
            id_="leave", text="Annual leave is 25 days", embedding=model.get_text_embedding("leave")
        )
    ]
    with open_store("embedded::memory:") as store:
        store.add(nodes)
        docstore = SimpleDocumentStore()
        docstore.add_documents(nodes)
        factory = CapabilityFactory(
            vector_store=store, document_store=docstore, llm_caller=cited, embedding=model
        )
        assert isinstance(factory.parts.llm, CallableLLM)
        assert (
            str(factory.create_rag_generator().generate("leave")) == "Annual leave is 25 days [1]."
        )
        factory.create_memory_manager().remember("I am on annual leave")
        found = factory.create_retriever("advanced").retrieve("annual leave")
        assert [hit.node_id for hit in found] == ["leave"]  # no memories


def test_the_factorys_retrievers_leave_memories_out(kb: KnowledgeBase) -> None:
    factory = CapabilityFactory.of(kb, llm=ScriptedLLM(cited))
    mine = Scope("carol")
    memory = factory.create_memory_manager(scope=mine).remember("annual leave is nice")
    for preset in ("basic", "advanced", "semantic"):
        assert factory.create_retriever(preset).search("annual leave", scope=mine).hits == []
    assert factory.create_memory_manager(scope=mine).forget(memory.id)
