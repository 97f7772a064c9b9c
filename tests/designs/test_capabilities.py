"""The calls of the retrieval module with capabilities, bundles and services."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import MMR, GraphRetriever, RetrievalPipeline, RuleRerank
from llama_retrieval_ext.capabilities import CapabilityFactory, MemoryManager
from llama_retrieval_ext.graph import open_graph
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.services import (
    KnowledgeService,
    MimicService,
    ReportService,
    SearchService,
)
from llama_retrieval_ext.testing import FakeEmbedding, FixedRetriever, ScriptedLLM

MODEL = FakeEmbedding()
TEXTS = {
    "pump": "The Grundfos pump feeds the boiler.",
    "valve": "Close the valve before the Grundfos pump is opened.",
    "leave": "Annual leave is 25 days a year.",
}
PRESETS = ("basic", "advanced", "semantic", "auto")


@pytest.fixture(scope="module")
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=MODEL, graph="graph::memory:"
    ) as opened:
        nodes = [TextNode(id_=name, text=text) for name, text in TEXTS.items()]
        opened.add(nodes, show_progress=False).raise_for_failures()
        yield opened


@pytest.fixture
def llm() -> ScriptedLLM:
    return ScriptedLLM(lambda prompt: "Annual leave is 25 days [1].")


@pytest.fixture
def factory(kb: KnowledgeBase, llm: ScriptedLLM) -> CapabilityFactory:
    return CapabilityFactory.of(kb, llm=llm)


def test_a_pipeline_gets_its_stages_one_by_one(kb: KnowledgeBase) -> None:
    pipeline = RetrievalPipeline("mine")
    pipeline.add_stage(kb.retriever("vector"))
    assert pipeline.add_stage(RuleRerank()) is pipeline
    assert len(pipeline.stages) == 2
    hits = pipeline.execute("annual leave", top_k=2, context={"user": "ann"})
    assert hits[0].node_id == "leave"
    again = asyncio.run(pipeline.aexecute("annual leave", top_k=2))
    assert [hit.node_id for hit in again] == [hit.node_id for hit in hits]
    assert RetrievalPipeline().name == "default"


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_makes_a_retriever(preset: str, factory: CapabilityFactory) -> None:
    retriever = factory.create_retriever(preset=preset, cache_key=f"test {preset}")
    assert retriever.retrieve("annual leave")[0].node_id == "leave"
    assert factory.create_retriever(preset=preset, cache_key=f"test {preset}") is retriever


def test_advanced_takes_weights_hops_and_the_designs_fusion(factory: CapabilityFactory) -> None:
    retriever = factory.create_retriever(
        preset="advanced",
        use_graph=True,
        fusion="rrf",
        vector_weight=0.6,
        graph_weight=0.4,
        enable_multi_hop=True,
        max_hops=2,
    )
    assert "RRF" in repr(retriever)
    assert {"pump", "valve"} <= {hit.node_id for hit in retriever.retrieve("Grundfos pump")}


def test_semantic_ends_with_mmr(factory: CapabilityFactory) -> None:
    retriever = factory.create_retriever(preset="semantic", lambda_param=0.7)
    assert any(isinstance(stage, MMR) for stage in retriever.stages)


def test_what_presets_refuse_is_a_value_error_that_says_what_there_is() -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=MODEL) as kb:
        factory = CapabilityFactory.of(kb)
        with pytest.raises(ValueError, match="graph_store"):
            factory.create_retriever(preset="advanced", use_graph=True)
        with pytest.raises(ValueError, match="there is no preset 'best'") as caught:
            factory.create_retriever(preset="best")
        assert all(preset in str(caught.value) for preset in PRESETS)


def test_a_factory_is_made_from_its_parts(kb: KnowledgeBase) -> None:
    factory = CapabilityFactory(
        vector_store=kb.retriever("vector").backend,
        graph_store=None,
        document_store=None,
        llm_caller=lambda prompt: "yes [1]",
        ner=None,
        embedding=MODEL,
    )
    assert factory.create_retriever(preset="basic").retrieve("annual leave")
    assert factory.create_rag_generator().generate("annual leave?")


def test_capabilities_are_made_with_the_designs_defaults(factory: CapabilityFactory) -> None:
    assert factory.create_data_analyzer(with_retriever=True, retriever_preset="advanced")
    assert factory.create_data_analyzer(with_retriever=False, cache_key="a")
    assert factory.create_style_generator(with_retriever=True, retriever_preset="basic")
    assert factory.create_rag_generator(retriever_preset="advanced")
    assert factory.create_memory_manager()
    assert factory.create_insight_generator()
    assert factory.create_intent_recognizer()
    kept = factory.create_rag_generator(cache_key="k")
    factory.clear_cache()
    assert factory.create_rag_generator(cache_key="k") is not kept


@pytest.mark.parametrize("name", ["search", "conversation", "work", "knowledge"])
def test_bundles_have_their_capabilities(name: str, factory: CapabilityFactory) -> None:
    bundle = getattr(factory, f"create_{name}_bundle")()
    assert bundle.retriever is not None


def test_the_graph_retriever_scores_by_distance() -> None:
    graph = open_graph("graph::memory:")
    nodes = [GraphNode(each, "Thing", each) for each in ("alpha", "beta", "gamma")]
    passages = [GraphNode(f"p{n}", "Chunk", text=f"text {n}") for n in range(3)]
    edges = [Edge("alpha", "NEXT", "beta"), Edge("beta", "NEXT", "gamma")]
    edges += [Edge(f"p{n}", "MENTIONS", each.id) for n, each in enumerate(nodes)]
    graph.upsert([*nodes, *passages], edges)
    with KnowledgeBase.open("embedded::memory:", embed_model=MODEL) as kb:
        kb.add([TextNode(id_=f"p{n}", text=f"text {n}") for n in range(3)], show_progress=False)
        retriever = GraphRetriever(
            kb.retriever("vector").backend, graph=graph, embed_model=MODEL, max_hops=2
        )
        hits = retriever.retrieve("alpha")
        assert all(isinstance(hit, Hit) and hit.matched_entities for hit in hits)
        distances = {hit.node_id: hit.hop_distance for hit in hits if isinstance(hit, Hit)}
        assert distances == {"p0": 0, "p1": 1, "p2": 2}
        scores = [hit.get_score() for hit in hits]
        assert scores == pytest.approx([scores[0], scores[0] * 0.7, scores[0] * 0.7**2])
        assert retriever.retrieve("nothing of the kind") == []
    graph.close()


def test_mmr_weighs_relevance_against_similarity_to_what_is_chosen(kb: KnowledgeBase) -> None:
    pipeline = kb.retriever("vector") >> MMR(0.7)
    assert pipeline.retrieve("annual leave")[0].node_id == "leave"


def test_search_service_gives_documents(factory: CapabilityFactory) -> None:
    best, *_ = SearchService.of(factory).search("annual leave", top_k=10, filters=None)
    assert (best.doc_id, best.content) == ("leave", TEXTS["leave"])


def test_mimic_service_answers_with_a_plain_function_as_model(kb: KnowledgeBase) -> None:
    factory = CapabilityFactory.of(kb, llm=lambda prompt: "Cheers!")
    service = MimicService.of(factory)
    assert str(service.generate_response("Is my leave fine?", use_history=True)) == "Cheers!"


def test_report_service_writes_a_weekly_report(kb: KnowledgeBase) -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=MODEL) as logs:
        findings = '{"findings": [{"metric": "key_tasks", "text": "Valves.", "sources": [1]}]}'
        llm = ScriptedLLM([findings, "Closed 3 valves [1]."])
        factory = CapabilityFactory.of(logs, llm=llm)
        factory.create_memory_manager().remember(
            "Closed 3 valves.",
            memory_type="work_log",
            timestamp=datetime(2026, 5, 4, tzinfo=UTC),
            metadata={"user_id": "ann"},
        )
        report = ReportService.of(factory).generate_weekly_report(
            "ann", date(2026, 5, 4), date(2026, 5, 10), style="professional"
        )
        assert "Closed 3 valves" in report.to_markdown()


def test_knowledge_service_answers_and_lists(factory: CapabilityFactory) -> None:
    service = KnowledgeService.of(factory)
    assert "25 days" in str(service.ask("How long is annual leave?"))
    assert isinstance(service.related("Grundfos"), list)
    assert isinstance(service.timeline("pump"), list)


def test_named_sections_of_the_context_reach_the_model(
    factory: CapabilityFactory, llm: ScriptedLLM
) -> None:
    answer = factory.create_rag_generator().generate(
        "How long is annual leave?",
        context={"insights": "leave is rarely taken", "style": "be brief"},
    )
    assert "leave is rarely taken" in llm.prompts[-1]
    assert "be brief" in llm.prompts[-1]
    assert TEXTS["leave"] in llm.prompts[-1]
    assert "[1] insights" not in llm.prompts[-1]
    assert json.dumps(answer.to_dict())


def test_memories_are_found_by_time_and_type() -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=MODEL) as kb:
        memories = MemoryManager(kb)
        day = datetime(2026, 5, 4, tzinfo=UTC)
        memories.remember("A log.", memory_type="work_log", timestamp=day)
        memories.remember("A chat.", memory_type="chat", timestamp=day)
        found = memories.retrieve_by_timerange(day, day, filters={"doc_type": "work_log"})
        assert [each.text for each in found] == ["A log."]


def test_stages_follow_a_retriever_over_any_hits() -> None:
    fixed = FixedRetriever([("a", 0.9, "text of a"), ("b", 0.5, "text of b")])
    assert len(RetrievalPipeline("p").add_stage(fixed).execute("text", top_k=1)) == 1
