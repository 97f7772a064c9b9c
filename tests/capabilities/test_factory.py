"""The factory: what it builds from which parts, what it keeps, and what it never mixes."""

import gc
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext.capabilities import CallableLLM, CapabilityBundle, CapabilityFactory
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.open import open_store
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM
from tests.capabilities.conftest import ACME, BETA


@pytest.fixture(scope="module")
def graph_kb() -> Iterator[KnowledgeBase]:
    """Pumps and valves in a knowledge base with a graph."""
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(), graph="graph::memory:"
    ) as kb:
        nodes = [
            TextNode(
                id_="pump",
                text="The Grundfos pump feeds the boiler.",
                metadata={"title": "Grundfos pump"},
            ),
            TextNode(id_="valve", text="Close the valve before the Grundfos pump is opened."),
        ]
        kb.add(nodes, show_progress=False).raise_for_failures()
        yield kb


@pytest.fixture
def factory(kb: KnowledgeBase) -> CapabilityFactory:
    return CapabilityFactory.of(kb, llm=ScriptedLLM(cited))


def cited(prompt: str) -> str:
    """Answers with the figure of the first passage, as a model should."""
    found = re.search(r"Annual leave is (\d+) days", prompt)
    return "NOT_IN_PASSAGES" if found is None else f"{found.group()} [1]."


def creations(factory: CapabilityFactory) -> list[Callable[..., object]]:
    return [
        factory.create_retriever,
        factory.create_rag_generator,
        factory.create_style_generator,
        factory.create_data_analyzer,
        factory.create_insight_generator,
        factory.create_memory_manager,
        factory.create_intent_recognizer,
        factory.create_search_capability_bundle,
        factory.create_conversation_capability_bundle,
        factory.create_work_capability_bundle,
        factory.create_knowledge_capability_bundle,
    ]


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
    factory.create_rag_generator(cache_key="k", no_answer="No.")
    with pytest.raises(ConfigurationError, match="clear_cache"):
        factory.create_rag_generator(cache_key="k", no_answer="Nothing.")


def test_presets_have_their_stages(factory: CapabilityFactory, graph_kb: KnowledgeBase) -> None:
    with_graph = CapabilityFactory.of(graph_kb)
    assert factory.create_retriever("basic").pipeline.name == "basic"
    assert len(factory.create_retriever("basic").pipeline.stages) == 2
    assert len(factory.create_retriever("semantic").pipeline.stages) == 4
    advanced = with_graph.create_retriever("advanced", use_graph=True, max_hops=1)
    assert len(advanced.pipeline.stages) >= 3
    assert "GraphRetriever" in repr(advanced)
    assert {hit.node.node_id for hit in advanced.retrieve("Grundfos pump")} == {"pump", "valve"}
    assert "GraphRetriever" not in repr(with_graph.create_retriever("advanced"))
    assert with_graph.create_retriever("auto", use_graph=True).pipeline.name == "advanced"
    assert with_graph.create_retriever("auto").pipeline.name == "advanced"
    assert factory.create_retriever("auto", use_graph=True).pipeline.name == "advanced"


def test_what_cannot_be_built_lists_what_there_is(
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


def held(capability: object) -> list[BaseRetriever]:
    """The retrievers that an object reaches in one step."""
    private = getattr(capability, "__pydantic_private__", None) or {}
    values = [*vars(capability).values(), *private.values()]
    return [each for each in values if isinstance(each, BaseRetriever)]


def test_who_holds_which_retriever(factory: CapabilityFactory, graph_kb: KnowledgeBase) -> None:
    (advanced,) = held(factory.create_rag_generator())
    assert advanced.name == "advanced"  # type: ignore[attr-defined]
    (with_graph,) = held(CapabilityFactory.of(graph_kb, llm=str.upper).create_rag_generator())
    assert "GraphRetriever" in repr(with_graph)
    (basic,) = held(factory.create_style_generator())
    assert basic.name == "basic"  # type: ignore[attr-defined]
    assert held(factory.create_style_generator(with_retriever=False)) == []
    assert held(factory.create_data_analyzer()) == []
    (history,) = held(factory.create_data_analyzer(with_retriever=True))
    assert history.name == "advanced"  # type: ignore[attr-defined]
    for create in (
        factory.create_memory_manager,
        factory.create_intent_recognizer,
        factory.create_insight_generator,
    ):
        assert held(create()) == []


def test_no_capability_is_part_of_itself(factory: CapabilityFactory) -> None:
    for create in creations(factory):
        capability = create()
        seen: set[int] = set()
        pending = [part for part in gc.get_referents(capability) if part is not type(capability)]
        while pending:
            part = pending.pop()
            assert part is not capability
            package = type(part).__module__.startswith("llama_retrieval_ext")
            if id(part) not in seen and (package or isinstance(part, dict | list | tuple)):
                seen.add(id(part))
                pending += [each for each in gc.get_referents(part) if not isinstance(each, type)]


def test_bundles_have_their_members(factory: CapabilityFactory, graph_kb: KnowledgeBase) -> None:
    members = {
        "search": ["retriever", "memory_manager"],
        "conversation": ["intent_recognizer", "memory_manager", "retriever", "style_generator"],
        "work": ["analyzer", "rag_generator", "memory_manager", "style_generator"],
        "knowledge": ["retriever", "analyzer", "insight_generator", "memory_manager"],
    }
    for each in (factory, CapabilityFactory.of(graph_kb, llm=str.upper)):
        for name, names in members.items():
            bundle: CapabilityBundle = getattr(each, f"create_{name}_capability_bundle")()
            assert list(bundle) == names
            assert all(getattr(bundle, member) is bundle[member] for member in names)
    assert factory.create_conversation_capability_bundle().retriever.name == "semantic"
    assert factory.create_work_capability_bundle().rag_generator.retriever.name == "advanced"
    assert factory.create_work_capability_bundle().analyzer.retriever.name == "advanced"
    assert "GraphRetriever" in repr(each.create_search_capability_bundle().retriever)
    assert "GraphRetriever" in repr(each.create_knowledge_capability_bundle().retriever)


def test_parts_of_other_stores_do_as_well() -> None:
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


@pytest.mark.slow
def test_two_tenants_through_one_factory_never_cross(kb: KnowledgeBase) -> None:
    """8 threads x 1,000 calls: answers, memories, tools and intents of two tenants."""
    factory = CapabilityFactory.of(kb, llm=ScriptedLLM(cited))
    tenants = {ACME: "25", BETA: "44"}
    managers = {scope: factory.create_memory_manager(cache_key="m") for scope in tenants}
    ids = [
        managers[scope].remember(f"{scope.tenant_id} likes leave", scope=scope).id
        for scope in tenants
    ]
    tools = {
        scope: factory.create_retriever("basic", cache_key="t").as_tool("t", "leave", scope=scope)
        for scope in tenants
    }

    def checked(scope: Scope, number: int) -> bool:
        tenant = scope.tenant_id or ""
        match number % 4:
            case 0:
                rag = factory.create_rag_generator(cache_key="rag", tokenize=str.split)
                said = rag.generate("How many days of annual leave?", scope=scope).text
                return tenants[scope] in said
            case 1:
                found = managers[scope].retrieve("leave", scope=scope)
                return [each.text for each in found] == [f"{tenant} likes leave"]
            case 2:
                other = next(each for each in tenants if each != scope).tenant_id or ""
                answer = str(tools[scope].call(query="annual leave").content)
                return tenant in answer and other not in answer
            case _:
                hits = factory.create_retriever("basic", cache_key="s").search(
                    "annual leave", scope=scope
                )
                return {hit.node.metadata["tenant_id"] for hit in hits} == {tenant}

    def worker(number: int) -> bool:
        scopes = list(tenants)
        return all(checked(scopes[(number + call) % 2], call // 2) for call in range(1000))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(worker, range(8)))
    for scope, id_ in zip(tenants, ids, strict=True):
        managers[scope].forget(id_, scope=scope)
