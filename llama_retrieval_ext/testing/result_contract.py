"""The promises about what `search` and `explain` return."""
# ruff: noqa: D102 - the names of the tests say what they say

import asyncio
import json
from collections.abc import Iterator

from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import node_ids
from llama_retrieval_ext.stages.algebra.retriever import Retriever
from llama_retrieval_ext.testing.retriever_fixtures import RetrieverFixtures, assert_same_ranking
from llama_retrieval_ext.trace import Trace

_HIT_KEYS = {
    "chunk_id",
    "text",
    "score",
    "metadata",
    "knowledge_base_id",
    "document_id",
    "source",
}


class ResultContract(RetrieverFixtures):
    """A search result: the hits of `retrieve`, with a trace and whatever is missing."""

    def test_search_has_the_hits_of_retrieve(self, retriever: Retriever) -> None:
        for query in self.queries:
            result = retriever.search(query)
            assert_same_ranking(result.hits, retriever.retrieve(query))
            assert (list(result), len(result), result.query) == (
                result.hits,
                len(result.hits),
                query,
            )

    def test_asearch_has_the_hits_of_search(self, retriever: Retriever) -> None:
        for query in self.queries:
            result = asyncio.run(retriever.asearch(query, top_k=3))
            assert_same_ranking(result.hits, retriever.search(query, top_k=3).hits)

    def test_a_whole_answer_is_not_degraded(self, retriever: Retriever) -> None:
        for query in self.queries:
            assert retriever.search(query).degraded == ()
            assert asyncio.run(retriever.asearch(query)).degraded == ()

    def test_the_trace_says_what_ran_how_long_and_what_came_out(self, retriever: Retriever) -> None:
        result = retriever.search(self.queries[0])
        assert result.trace is not None
        assert result.trace.name == retriever.name
        assert result.trace.count == len(result.hits)
        for part in _parts(result.trace):
            assert part.name
            assert part.error is None
            assert part.duration_s is not None
            assert 0 <= part.duration_s <= (result.trace.duration_s or 0)

    def test_a_limit_on_the_time_does_not_change_the_answer(self, retriever: Retriever) -> None:
        for query in self.queries:
            limited = retriever.retrieve(Query(query, timeout_s=60))
            assert_same_ranking(limited, retriever.retrieve(query))

    def test_explain_has_the_same_hits_and_notes_the_best(self, retriever: Retriever) -> None:
        result = retriever.explain(self.queries[0])
        assert_same_ranking(result.hits, retriever.retrieve(self.queries[0]))
        assert result.trace is not None
        assert result.trace.notes["top"] == node_ids(result.hits[:5])
        asynchronous = asyncio.run(retriever.aexplain(self.queries[0])).trace
        assert asynchronous is not None
        assert asynchronous.notes["top"] == result.trace.notes["top"]

    def test_the_result_is_json_under_the_agreed_names(self, retriever: Retriever) -> None:
        result = retriever.search(self.queries[0])
        told = json.loads(json.dumps(result.to_dict()))
        assert {"hits", "degraded", "trace"} <= told.keys()
        assert len(told["hits"]) == len(result.hits)
        for shown, hit in zip(told["hits"], result.hits, strict=True):
            assert shown.keys() >= _HIT_KEYS
            assert shown["chunk_id"] == hit.node.node_id
            assert shown["text"] == hit.node.get_content()
            assert shown["knowledge_base_id"] == hit.node.metadata.get("kb_id")
            assert shown["document_id"] == hit.node.ref_doc_id


def _parts(trace: Trace) -> Iterator[Trace]:
    yield trace
    for child in trace.children:
        yield from _parts(child)
