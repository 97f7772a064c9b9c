"""Rerankers as users write them."""

from collections.abc import Sequence

from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext import Hit, Query, RerankChain, Reranker
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.testing import FixedRetriever
from tests.pipeline.parts import RefineBy
from tests.searching import Searched

SOURCE = FixedRetriever(
    [("a", 0.9, "travel"), ("b", 0.8, "annual leave"), ("c", 0.7, "sick leave")]
)


class Longest(Reranker):
    def rerank(self, query: Query, hits: Sequence[Hit]) -> Sequence[NodeWithScore]:
        if query.query_str == "fail":
            raise ConnectionError("no model")
        if query.query_str == "nothing":
            return []
        return sorted(hits, key=lambda hit: -len(hit.text))


def test_a_reranker_is_a_plain_function_that_may_fail(searched: Searched) -> None:
    assert node_ids(searched(SOURCE >> Longest(), "q").hits) == ["b", "c", "a"]
    for query, reason in (("fail", "no model"), ("nothing", "returned no hits")):
        result = searched(SOURCE >> Longest(), query)
        assert node_ids(result.hits) == ["a", "b", "c"]
        (degraded,) = result.degraded
        assert reason in degraded.reason
    chain = RerankChain(Longest(), RefineBy(lambda hits: hits[::-1]))
    assert node_ids(searched(SOURCE >> chain, "nothing").hits) == ["c", "b", "a"]
