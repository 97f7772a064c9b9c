"""`Telemetry` is open from its construction to its end."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution import Telemetry
from llama_retrieval_ext.testing.fakes import FixedRetriever


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
