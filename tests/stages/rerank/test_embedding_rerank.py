"""`EmbeddingRerank`: another embedding model has the last word."""

import asyncio
from typing import Any

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import node_ids, score_of
from llama_retrieval_ext.stages.rerank.models import EmbeddingRerank
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever

ROWS = [
    ("travel", 9.0, "book travel two weeks ahead"),
    ("sick", 8.0, "sick leave"),
    ("leave", -1.0, "annual leave"),
]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_hits_come_by_cosine_whatever_their_scores_were(*, asynchronous: bool) -> None:
    pipeline = FakeRetriever(ROWS) >> EmbeddingRerank(FakeEmbedding())
    query = "annual leave"
    found = asyncio.run(pipeline.aretrieve(query)) if asynchronous else pipeline.retrieve(query)
    assert node_ids(found) == ["leave", "sick", "travel"]
    assert [hit.score for hit in found] == pytest.approx([1.0, 0.5, 0.0], abs=1e-6)
    assert score_of(found[0]) <= 1.0


def test_texts_are_embedded_in_one_batch_and_the_query_once() -> None:
    model = FakeEmbedding()
    (FakeRetriever(ROWS) >> EmbeddingRerank(model)).retrieve("annual leave")
    assert len(model.calls) == len(ROWS) + 1


def test_f9_an_embedding_of_the_retrievers_model_does_not_reach_this_one() -> None:
    query = Query("annual leave", embedding=[1.0, 0.0])
    found = (FakeRetriever(ROWS) >> EmbeddingRerank(FakeEmbedding())).retrieve(query)
    assert node_ids(found)[0] == "leave"
    assert query.embedding == [1.0, 0.0]


def test_only_so_many_are_kept() -> None:
    found = (FakeRetriever(ROWS) >> EmbeddingRerank(FakeEmbedding(), top_k=1)).retrieve("leave")
    assert len(found) == 1


def test_a_model_that_is_late_leaves_the_order_as_it_was() -> None:
    stage = EmbeddingRerank(FakeEmbedding(delay_s=0.5), timeout_s=0.02)
    for result in (
        (FakeRetriever(ROWS) >> stage).search("annual leave"),
        asyncio.run((FakeRetriever(ROWS) >> stage).asearch("annual leave")),
    ):
        assert node_ids(result.hits) == ["travel", "sick", "leave"]
        (degraded,) = result.degraded
        assert degraded.where == "EmbeddingRerank"
        assert "did not answer within 0.02 s" in degraded.reason


@pytest.mark.parametrize("wrong", [{"top_k": 0}, {"timeout_s": -1.0}, {"embed_model": None}])
def test_bad_arguments_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        EmbeddingRerank(**{"embed_model": FakeEmbedding(), **wrong})
