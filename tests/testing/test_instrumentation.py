"""`recorded` collects the spans and events of LlamaIndex."""

from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent

from llama_retrieval_ext.testing.fakes import FakeRetriever
from llama_retrieval_ext.testing.instrumentation import recorded


def test_spans_and_events_within_the_block_are_recorded() -> None:
    retriever = FakeRetriever([("a", 0.5)])
    retriever.retrieve("before")
    with recorded() as recording:
        retriever.retrieve("query")
    retriever.retrieve("after")
    own = [span for span in recording.spans if span.instance is retriever]
    assert [span.method for span in own] == ["retrieve", "_retrieve"]
    assert all(span.ended for span in own)
    assert recording.parent_of(own[1], "retrieve") is own[0]
    (ended,) = [event for event in recording.events if isinstance(event, RetrievalEndEvent)]
    assert str(ended.str_or_query_bundle) == "query"
