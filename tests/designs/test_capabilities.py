"""The calls of the retrieval module with capabilities, bundles and services."""

from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.capabilities import CapabilityFactory
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.services import KnowledgeService, MimicService, ReportService
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM

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
