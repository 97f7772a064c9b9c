"""The calls of the retrieval module with capabilities, bundles and services."""

import asyncio
import re
from collections.abc import Awaitable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from llama_index.core.schema import TextNode

import llama_retrieval_ext
from llama_retrieval_ext import KnowledgeBase, Query, RetrievalItem, RetrievalPipeline, Retriever
from llama_retrieval_ext.capabilities import CapabilityFactory
from llama_retrieval_ext.errors import CompositionError, ConfigurationError
from llama_retrieval_ext.graph import EntityLinker, GraphNode, PassageLinks
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.lazy import _OF_DESIGNS
from llama_retrieval_ext.services import KnowledgeService, MimicService, ReportService
from llama_retrieval_ext.testing import FakeEmbedding, FixedRetriever, ScriptedLLM
from tests.cases import cases

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


@cases("preset", PRESETS)
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


def test_an_async_ner_is_awaited(kb: KnowledgeBase) -> None:
    class Ner:
        async def extract(self, text: str) -> list[str]:
            await asyncio.sleep(0)
            return ["Tower crane"]

    async def find(text: str) -> list[str]:
        return ["Tower crane"]

    def find_later(text: str) -> Awaitable[list[str]]:
        return find(text)

    graph = EmbeddedGraph(":memory:")
    graph.upsert([GraphNode("crane", "Equipment", "Tower crane")], [])
    for ner in (Ner(), find, find_later):
        linker = EntityLinker(graph, ner=ner)
        for linked in (linker.link("what lifts?"), asyncio.run(linker.alink("what lifts?"))):
            assert [(each.node_id, each.by) for each in linked] == [("crane", "ner")]
        assert PassageLinks(ner=ner).entities_of("what lifts?", {}) == ["Tower crane"]
        factory = CapabilityFactory.of(kb, ner=ner)
        retriever = factory.create_retriever("advanced", use_graph=True, max_hops=1)
        assert not retriever.search("what lifts?").degraded
        assert not asyncio.run(retriever.asearch("what lifts?")).degraded


@pytest.mark.slow
@cases("size", [1, 2, 4, 8, 20])
def test_semantic_finds_as_much_as_basic_with_scores_from_0_to_1(size: int) -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=MODEL) as own:
        texts = [f"Chapter {n} about tables" for n in range(size)]
        own.add([TextNode(id_=text, text=text) for text in texts], show_progress=False)
        factory = CapabilityFactory.of(own, llm=ScriptedLLM([]))
        made = factory.create_conversation_bundle().retriever
        assert made is not None
        for hits in (
            own.search("tables", "semantic", top_k=8),
            own.retriever("semantic", top_k=8).retrieve("tables"),
            made.search("tables", top_k=8),
            made.execute("tables"),
        ):
            assert len(hits) in {min(size, 8), min(size, 10)}
            assert len(hits) >= min(size, 8)
            assert all(0 <= (hit.score or 0) <= 1 for hit in hits)


def test_the_designs_names_of_bundles_and_their_keys(factory: CapabilityFactory) -> None:
    parts = {
        "search": ("retriever", "memory_manager"),
        "conversation": ("retriever", "memory_manager", "style_generator", "intent_recognizer"),
        "work": ("retriever", "analyzer", "rag_generator", "memory_manager", "style_generator"),
        "knowledge": ("retriever", "analyzer", "insight_generator", "memory_manager"),
    }
    for name, keys in parts.items():
        bundle = getattr(factory, f"create_{name}_capability_bundle")()
        assert all(bundle[key] is getattr(bundle, key) is not None for key in keys)
        assert all(key in bundle for key in keys)
        assert "oracle" not in bundle
        with pytest.raises(KeyError, match="it has retriever, "):
            bundle["oracle"]
    assert "analyzer" not in factory.create_search_capability_bundle()


def test_a_pipeline_has_the_designs_pipeline_and_number_of_hits(kb: KnowledgeBase) -> None:
    made = CapabilityFactory.of(kb).create_retriever("semantic")
    assert (made.pipeline.name, made.pipeline.stages) == ("semantic", made.stages)
    many = FixedRetriever([(f"n{n:02}", 1 - n / 100) for n in range(30)], top_k=30)
    pipeline = RetrievalPipeline("mine").add_stage(many)
    assert len(pipeline.execute("q")) == 10
    assert len(asyncio.run(pipeline.aexecute("q"))) == 10
    assert len(pipeline.execute("q", top_k=20)) == 20
    assert len(pipeline.search("q")) == 30


@cases("part", ["vector_store", "document_store", "graph_store"])
def test_a_mock_is_no_part(part: str) -> None:
    with pytest.raises(ConfigurationError, match="got <MagicMock"):
        CapabilityFactory(**{part: MagicMock()})


class Process:
    def process(self, query: str, previous: object, context: object) -> object:
        return previous


@cases(
    ("call", "advice"),
    [
        (lambda: RetrievalPipeline().add_stage(Process()), r"function of \(query, hits\)"),
        (lambda: llama_retrieval_ext.FusionMode, "mode='reciprocal_rerank'"),  # type: ignore[attr-defined]
        (lambda: llama_retrieval_ext.RetrievalResult, "use Hit"),  # type: ignore[attr-defined]
        (type("Own", (Retriever,), {"retrieve": print}), r"define plan\(self, query\)"),
        (lambda: Query("q").text, "write query_str"),  # type: ignore[attr-defined]
        (lambda: RetrievalItem(source="vector"), r"write RetrievalItem\(content=...\)"),  # type: ignore[call-arg]
        (lambda: RetrievalItem(1, "vector", 2, 0.5), "must be of type str"),  # type: ignore[arg-type]
    ],
)
def test_a_call_of_a_design_that_differs_says_what_to_write(call: Any, advice: str) -> None:
    with pytest.raises((ConfigurationError, CompositionError, AttributeError, ImportError)) as got:
        call()
    assert re.search(advice, str(got.value)), got.value


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


def test_the_table_of_names_has_each_class_of_the_designs() -> None:
    package = Path(llama_retrieval_ext.__file__).parent
    table = (package / "config/README.md").read_text().partition("## In the designs, and here")[2]
    assert [name for name in _OF_DESIGNS if name not in table] == []
    for name in _OF_DESIGNS:
        with pytest.raises(ImportError, match=f"no {name}; use "):
            getattr(llama_retrieval_ext, name)
