"""`RerankChain`: rerankers that stand in for each other."""

import time

import pytest
from llama_index.core.postprocessor import LongContextReorder
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext import MMR, Query, RuleRerank
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids, score_of
from llama_retrieval_ext.pipeline import Postprocessed
from llama_retrieval_ext.stages import EmbeddingRerank, LLMRerank, ModelRerank
from llama_retrieval_ext.stages.rerank.models import RerankChain, as_reranker
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, ScriptedLLM
from tests.cases import cases
from tests.patience import unless_stalled
from tests.searching import Searched

SOURCE = FakeRetriever([("a", 0.9, "travel"), ("b", 0.8, "annual leave"), ("c", 0.7, "sick leave")])
BROKEN = EmbeddingRerank(FakeEmbedding(fail=ConnectionError("no model")))


class Reversing(BaseNodePostprocessor):
    """Reorders and keeps the scores, as ``RankGPTRerank`` does."""

    delay_s: float = 0.0
    fail: bool = False

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        time.sleep(self.delay_s)
        if self.fail:
            raise ValueError("out of order")
        return nodes[::-1]


def test_only_the_first_reranker_that_works_is_used(searched: Searched) -> None:
    second = FakeEmbedding()
    result = searched(SOURCE >> RerankChain(Reversing(), EmbeddingRerank(second)), "annual leave")
    assert node_ids(result.hits) == ["c", "b", "a"]
    assert result.degraded == ()
    assert second.calls == []


def test_the_next_reranker_is_used_when_one_fails_and_the_answer_is_degraded(
    searched: Searched,
) -> None:
    result = searched(
        SOURCE >> RerankChain(BROKEN, Reversing(fail=True), RuleRerank()), "annual leave"
    )
    assert node_ids(result.hits)[0] == "b"
    assert [(part.where, part.reason) for part in result.degraded] == [
        ("EmbeddingRerank", "ConnectionError: no model"),
        ("Reversing", "ValueError: out of order"),
    ]


def test_the_ranking_is_unchanged_when_every_reranker_fails(searched: Searched) -> None:
    result = searched(SOURCE >> RerankChain(BROKEN, Reversing(fail=True)), "annual leave")
    assert [(hit.node_id, hit.score) for hit in result.hits] == [("a", 0.9), ("b", 0.8), ("c", 0.7)]
    assert len(result.degraded) == 2


def test_an_llm_without_a_usable_answer_is_replaced_by_the_next_reranker() -> None:
    pipeline = SOURCE >> RerankChain(LLMRerank(ScriptedLLM(["Doc: 0, Relevance: 9"])), Reversing())
    result = pipeline.search("annual leave")
    assert node_ids(result.hits) == ["c", "b", "a"]
    (degraded,) = result.degraded
    assert degraded.where == "LLMRerank"


@pytest.mark.slow
@unless_stalled
def test_each_reranker_of_a_chain_gets_a_part_of_the_time_of_the_query(searched: Searched) -> None:
    chain = RerankChain(Reversing(delay_s=60), RuleRerank())
    result = searched(SOURCE >> chain, Query("annual leave", timeout_s=0.8))
    assert node_ids(result.hits)[0] == "b"
    assert [part.where for part in result.degraded] == ["Reversing"]


def test_a_chain_raises_configuration_errors() -> None:
    with pytest.raises(ConfigurationError, match="store="):
        (SOURCE >> RerankChain(MMR(), RuleRerank())).retrieve("annual leave")


def test_the_order_of_a_reranker_that_only_reorders_is_kept(searched: Searched) -> None:
    found = searched(SOURCE >> RerankChain(Reversing()), "annual leave").hits
    assert node_ids(found) == ["c", "b", "a"]
    scores = [score_of(hit) for hit in found]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) == 0.9


def test_a_chain_calls_no_reranker_for_an_empty_ranking() -> None:
    pipeline = FakeRetriever() >> RerankChain(BROKEN)
    result = pipeline.search("q")
    assert (result.hits, result.degraded) == ([], ())


def test_a_chain_refuses_missing_or_wrong_rerankers() -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        RerankChain()
    with pytest.raises(ConfigurationError, match="timeout_s"):
        RerankChain(RuleRerank(), timeout_s=0)


class Ranker:
    def rank(self, query: str, docs: list[str], doc_ids: list[int]) -> list[object]:
        return []


def test_stages_postprocessors_and_rankers_are_rerankers() -> None:
    stage, postprocessor, ranker = MMR(), LongContextReorder(), Ranker()
    assert as_reranker(stage) is stage
    assert as_reranker(postprocessor) == Postprocessed(postprocessor)
    assert as_reranker(ranker) == ModelRerank(ranker)  # type: ignore[arg-type]


@cases("part", ["cohere", None, Ranker])
def test_a_part_that_cannot_rerank_is_refused(part: object) -> None:
    with pytest.raises(ConfigurationError, match="LlamaIndex postprocessor"):
        as_reranker(part)  # type: ignore[arg-type]
