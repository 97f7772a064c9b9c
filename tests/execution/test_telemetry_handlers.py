"""Spans and events for OpenTelemetry: names of the conventions, no content by default."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from llama_index.core.schema import TextNode
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from llama_retrieval_ext import RRF, KnowledgeBase, Query, Scope, branches
from llama_retrieval_ext.errors import ConfigurationError, ScopeViolationError
from llama_retrieval_ext.execution import FusionEvent, ScopeViolationEvent, Telemetry
from llama_retrieval_ext.retrievers.store_retriever import checked_hits
from llama_retrieval_ext.stores.engine.backend import Candidate
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, FixedRetriever
from tests.instrumentation import recorded

SECRET = "reorganisation"


@dataclass
class Exported:
    provider: TracerProvider = field(default_factory=TracerProvider)
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def exported() -> Iterator[Exported]:
    exported = Exported()
    exported.provider.add_span_processor(SimpleSpanProcessor(exported.exporter))
    yield exported
    exported.provider.shutdown()


@pytest.fixture
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        kb.add([TextNode(id_="n1", text=f"The {SECRET} is in May.")], show_progress=False)
        yield kb


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_a_hybrid_search_is_one_span_with_its_embedding_inside(
    exported: Exported, kb: KnowledgeBase
) -> None:
    retriever = kb.retriever(top_k=3)
    with Telemetry(exported.provider):
        retriever.retrieve(f"When is the {SECRET}?")
    retriever.retrieve("after the block")
    embedding, retrieval = exported.spans()
    assert embedding.name.startswith("embeddings ")
    assert retrieval.name == "retrieval hybrid"
    assert embedding.parent is not None
    assert embedding.parent.span_id == retrieval.context.span_id
    assert attributes(retrieval) == {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": "hybrid",
        "gen_ai.retrieval.top_k": 3,
        "llama_retrieval_ext.hits": 1,
    }
    assert attributes(embedding)["gen_ai.operation.name"] == "embeddings"
    (fusion,) = [event for event in retrieval.events if event.name == "FusionEvent"]
    assert (fusion.attributes or {})["found.keyword"] == 1
    assert SECRET not in "".join(span.to_json() for span in exported.spans())


@pytest.mark.slow
def test_content_is_exported_only_with_the_option_content(
    exported: Exported, kb: KnowledgeBase
) -> None:
    with Telemetry(exported.provider, content=True):
        kb.retriever("keyword").retrieve(SECRET)
    (span,) = exported.spans()
    assert attributes(span)["gen_ai.retrieval.query.text"] == SECRET
    assert '"id": "n1"' in str(attributes(span)["gen_ai.retrieval.documents"])


def test_a_leg_is_a_child_span_and_its_failure_an_event(exported: Exported) -> None:
    law, web = FakeRetriever([("a", 0.9)]), FakeRetriever(error=ConnectionError("down"))
    with Telemetry(exported.provider):
        (branches(law, web) >> RRF()).retrieve("leave")
    spans = exported.spans()
    (whole,) = [span for span in spans if span.parent is None]
    assert len(spans) == 3
    degraded = [event for span in spans for event in span.events if "Degraded" in event.name]
    assert [str((event.attributes or {})["reason"]) for event in degraded] == [
        "ConnectionError: down"
    ]
    assert any(event.name == "FusionEvent" for event in whole.events)


def test_fusions_and_scope_violations_are_events(kb: KnowledgeBase) -> None:
    with recorded() as seen:
        kb.retriever(top_k=3).retrieve("reorganisation")
        (branches(FakeRetriever([("a", 0.9)]), FakeRetriever()) >> RRF(k=10)).retrieve("leave")
    hybrid, pipeline = (event for event in seen.events if isinstance(event, FusionEvent))
    assert (hybrid.source, hybrid.found, hybrid.returned) == (
        "hybrid",
        {"vector": 1, "keyword": 1},
        1,
    )
    assert (pipeline.fusion, [*pipeline.found.values()], pipeline.returned) == (
        "RRF(k=10)",
        [1, 0],
        1,
    )
    foreign = Candidate(TextNode(id_="x", text=SECRET, metadata={"tenant_id": "globex"}), 0.5)
    condition = Query("q", scope=Scope("acme")).condition
    with recorded() as seen, pytest.raises(ScopeViolationError):
        checked_hits([foreign], condition, store="S", drop_violations=False, source="vector")
    (violation,) = (event for event in seen.events if isinstance(event, ScopeViolationEvent))
    assert (violation.store, violation.violations, violation.returned) == ("S", 1, 1)
    assert SECRET not in violation.model_dump_json()


def test_spans_are_exported_while_telemetry_is_open_and_never_twice() -> None:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with Telemetry(provider), pytest.raises(ConfigurationError, match="twice"):
        Telemetry(provider)
    retriever = FixedRetriever([("a", 0.9)])
    opened = Telemetry(provider)
    retriever.retrieve("query")
    opened.close()
    retriever.retrieve("query")
    assert [span.name for span in exporter.get_finished_spans()] == ["retrieval fixed"]
    provider.shutdown()
