"""`RerankChain`: rerankers that stand in for each other."""

import asyncio
import time

import pytest
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult, node_ids, score_of
from llama_retrieval_ext.stages.rerank.chain import RerankChain
from llama_retrieval_ext.stages.rerank.llm import LLMRerank
from llama_retrieval_ext.stages.rerank.mmr import MMR
from llama_retrieval_ext.stages.rerank.models import EmbeddingRerank
from llama_retrieval_ext.stages.rerank.rules import RuleRerank
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM

SOURCE = FakeRetriever([("a", 0.9, "travel"), ("b", 0.8, "annual leave"), ("c", 0.7, "sick leave")])
BROKEN = EmbeddingRerank(FakeEmbedding(fail=ConnectionError("no model")))


class Reversing(BaseNodePostprocessor):
    """Reorders and keeps the scores, as ``RankGPTRerank`` does."""

    delay_s: float = 0.0
    fail: bool = False
    adds: bool = False

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        time.sleep(self.delay_s)
        if self.fail:
            raise ValueError("out of order")
        added = [NodeWithScore(node=TextNode(id_="x"), score=1.0)] if self.adds else []
        return [*added, *reversed(nodes)]


def searched(chain: RerankChain, query: str | Query = "annual leave") -> SearchResult:
    pipeline = SOURCE >> chain
    result = pipeline.search(query)
    asynchronous = asyncio.run(pipeline.asearch(query))
    assert node_ids(asynchronous.hits) == node_ids(result.hits)
    assert [part.where for part in asynchronous.degraded] == [
        part.where for part in result.degraded
    ]
    return result


def test_the_first_that_works_is_used_and_no_other() -> None:
    second = FakeEmbedding()
    result = searched(RerankChain(Reversing(), EmbeddingRerank(second)))
    assert node_ids(result.hits) == ["c", "b", "a"]
    assert result.degraded == ()
    assert second.calls == []


def test_the_next_is_used_when_one_fails_and_the_answer_is_degraded() -> None:
    result = searched(RerankChain(BROKEN, Reversing(fail=True), RuleRerank()))
    assert node_ids(result.hits)[0] == "b"
    assert [(part.where, part.reason) for part in result.degraded] == [
        ("EmbeddingRerank", "ConnectionError: no model"),
        ("Reversing", "ValueError: out of order"),
    ]


def test_the_ranking_passes_through_when_all_fail() -> None:
    result = searched(RerankChain(BROKEN, Reversing(fail=True)))
    assert [(hit.node_id, hit.score) for hit in result.hits] == [("a", 0.9), ("b", 0.8), ("c", 0.7)]
    assert len(result.degraded) == 2


def test_m3_an_llm_that_says_nothing_usable_hands_over_and_is_reported_once() -> None:
    pipeline = SOURCE >> RerankChain(LLMRerank(ScriptedLLM(["Doc: 0, Relevance: 9"])), Reversing())
    result = pipeline.search("annual leave")
    assert node_ids(result.hits) == ["c", "b", "a"]
    (degraded,) = result.degraded
    assert degraded.where == "LLMRerank"


def test_one_that_is_late_costs_its_time_and_no_more() -> None:
    chain = RerankChain(Reversing(delay_s=6.0), RuleRerank(), timeout_s=0.5)
    started = time.monotonic()
    result = searched(chain)
    assert time.monotonic() - started < 5
    assert node_ids(result.hits)[0] == "b"
    assert "did not answer within 0.5 s" in result.degraded[0].reason


def test_each_has_its_part_of_the_querys_time_so_that_the_next_is_reached() -> None:
    chain = RerankChain(Reversing(delay_s=6.0), RuleRerank())
    result = searched(chain, Query("annual leave", timeout_s=0.8))
    assert node_ids(result.hits)[0] == "b"
    assert [part.where for part in result.degraded] == ["Reversing"]


def test_a_mistake_of_the_caller_is_raised() -> None:
    with pytest.raises(ConfigurationError, match="store="):
        (SOURCE >> RerankChain(MMR(), RuleRerank())).retrieve("annual leave")


def test_the_order_of_a_reranker_that_only_reorders_is_kept() -> None:
    found = searched(RerankChain(Reversing())).hits
    assert node_ids(found) == ["c", "b", "a"]
    scores = [score_of(hit) for hit in found]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) == 0.9


def test_hits_that_a_reranker_adds_are_left_out() -> None:
    assert "x" not in node_ids(searched(RerankChain(Reversing(adds=True))).hits)


def test_an_empty_ranking_asks_nobody() -> None:
    pipeline = FakeRetriever() >> RerankChain(BROKEN)
    result = pipeline.search("q")
    assert (result.hits, result.degraded) == ([], ())


def test_bad_arguments_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        RerankChain()
    with pytest.raises(ConfigurationError, match="a reranker is"):
        RerankChain("cohere")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="timeout_s"):
        RerankChain(RuleRerank(), timeout_s=0)


def test_its_representation_is_its_expression() -> None:
    chain = RerankChain(RuleRerank(), MMR(0.7), timeout_s=2.0)
    assert eval(repr(chain)) == chain
