"""The factory: what it builds, what it keeps, and what it never mixes."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext import KnowledgeBase, Scope, open_store
from llama_retrieval_ext.capabilities import CapabilityFactory, retrieval_tool
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.llm.functions import CallableLLM
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM
from tests.capabilities.conftest import ACME, BETA, cited
from tests.cases import cases
from tests.quick import trials


def creations(factory: CapabilityFactory) -> list[Callable[..., object]]:
    return [
        factory.create_retriever,
        factory.create_rag_generator,
        factory.create_style_generator,
        factory.create_data_analyzer,
        factory.create_insight_generator,
        factory.create_memory_manager,
        factory.create_intent_recognizer,
        factory.create_search_bundle,
        factory.create_conversation_bundle,
        factory.create_work_bundle,
        factory.create_knowledge_bundle,
    ]


@pytest.mark.slow
def test_a_key_gives_the_same_object_and_none_a_new_one(factory: CapabilityFactory) -> None:
    for create in creations(factory):
        first = create(cache_key="k")
        assert create(cache_key="k") is first
        assert create() is not create()
        assert create(cache_key="other") is not first
    kept = [create(cache_key="k") for create in creations(factory)]
    factory.clear_cache()
    assert not any(
        create(cache_key="k") is old for create, old in zip(creations(factory), kept, strict=True)
    )


@pytest.mark.slow
def test_a_key_gives_the_same_object_to_eight_threads(factory: CapabilityFactory) -> None:
    start = Barrier(8)

    def created(_: int) -> list[int]:
        start.wait()
        return [id(create(cache_key="k")) for create in creations(factory)]

    with ThreadPoolExecutor(8) as pool:
        assert len({tuple(ids) for ids in pool.map(created, range(8))}) == 1


def test_a_key_that_was_made_with_other_options_is_an_error(factory: CapabilityFactory) -> None:
    factory.create_retriever("basic", top_k=3, cache_key="k")
    for options in ({"top_k": 4}, {}, {"top_k": 3, "preset": "semantic"}):
        with pytest.raises(ConfigurationError, match="'k' has a retriever that was made with"):
            factory.create_retriever(cache_key="k", **options)
    factory.create_rag_generator(cache_key="k", top_k=3)
    with pytest.raises(ConfigurationError, match="clear_cache"):
        factory.create_rag_generator(cache_key="k", top_k=4)


def name_of(retriever: object) -> str:
    return str(getattr(retriever, "name", None))


def held(capability: object) -> list[BaseRetriever]:
    """The retrievers that an object reaches in one step."""
    private = getattr(capability, "__pydantic_private__", None) or {}
    values = [*vars(capability).values(), *private.values()]
    return [value for value in values if isinstance(value, BaseRetriever)]


@cases(
    ("capability", "options", "names"),
    [
        ("rag_generator", {}, ["advanced"]),
        ("style_generator", {}, ["basic"]),
        ("style_generator", {"with_retriever": False}, []),
        ("data_analyzer", {}, []),
        ("data_analyzer", {"with_retriever": True}, ["advanced"]),
        ("data_analyzer", {"with_retriever": True, "retriever_preset": "basic"}, ["basic"]),
    ],
)
def test_a_capability_has_the_retriever_of_its_preset(
    factory: CapabilityFactory, capability: str, options: dict[str, object], names: list[str]
) -> None:
    created = getattr(factory, f"create_{capability}")(**options)
    assert [name_of(each) for each in held(created)] == names


def test_the_advanced_retriever_has_the_graph_of_the_knowledge_base(
    graph_kb: KnowledgeBase,
) -> None:
    (retriever,) = held(CapabilityFactory.of(graph_kb, llm=str.upper).create_rag_generator())
    assert "GraphRetriever" in repr(retriever)


@pytest.mark.slow
def test_two_tenants_through_one_factory_never_cross(kb: KnowledgeBase) -> None:
    """8 threads, each with some calls: answers, memories, tools and intents of two tenants."""
    factory = CapabilityFactory.of(kb, llm=ScriptedLLM(cited))
    tenants = {ACME: "25", BETA: "44"}
    managers = {scope: factory.create_memory_manager(cache_key="m") for scope in tenants}
    ids = [
        managers[scope].remember(f"{scope.tenant_id} likes leave", scope=scope).id
        for scope in tenants
    ]
    tools = {
        scope: retrieval_tool(
            factory.create_retriever("basic", cache_key="t"), "t", "leave", scope=scope
        )
        for scope in tenants
    }

    def checked(scope: Scope, number: int) -> bool:
        tenant = scope.tenant_id or ""
        match number % 4:
            case 0:
                rag = factory.create_rag_generator(cache_key="rag", timeout_s=60)
                said = rag.generate("How many days of annual leave?", scope=scope).text
                return tenants[scope] in said
            case 1:
                found = managers[scope].retrieve("leave", scope=scope)
                return [each.text for each in found] == [f"{tenant} likes leave"]
            case 2:
                other = next(tenant for tenant in tenants if tenant != scope).tenant_id or ""
                answer = str(tools[scope].call(query="annual leave").content)
                return tenant in answer and other not in answer
            case _:
                hits = factory.create_retriever("basic", cache_key="s").search(
                    "annual leave", scope=scope
                )
                return {hit.node.metadata["tenant_id"] for hit in hits} == {tenant}

    def worker(number: int) -> bool:
        scopes = list(tenants)
        return all(checked(scopes[(number + call) % 2], call // 2) for call in range(trials(16)))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(worker, range(8)))
    for scope, id_ in zip(tenants, ids, strict=True):
        managers[scope].forget(id_, scope=scope)


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
