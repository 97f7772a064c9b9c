"""Several queries at a time reach an engine that takes batches as few requests."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from llama_retrieval_ext.embeddings.local import LocalEmbedding
from llama_retrieval_ext.errors import (
    DimensionMismatchError,
    ScopeRequiredError,
    StoreUnavailableError,
)
from llama_retrieval_ext.execution.context import Context, Session, entered
from llama_retrieval_ext.execution.legs import CircuitBreaker, Leg
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rerank.rules import RuleRerank
from llama_retrieval_ext.stages.selection import Top
from llama_retrieval_ext.stores.engine.backend import Candidate, EngineQuery, Search
from llama_retrieval_ext.testing.corpus import ACME, GLOBEX, SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fake_backend import FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding

T = TypeVar("T")
MODEL = FakeEmbedding()
QUERIES: list[Query | str] = [
    *SAMPLE_QUERIES,
    Query(SAMPLE_QUERIES[0], top_k=1),
    Query(SAMPLE_QUERIES[0], scope=ACME),
    Query(SAMPLE_QUERIES[0], scope=GLOBEX),
    "",
]


class Counting(FakeBackend):
    """Counts the requests it gets."""

    def __init__(self) -> None:
        super().__init__(sample_nodes(MODEL))
        self.batches: list[int] = []
        self.singles = 0

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        self.singles += 1
        return super().dense(embedding, search)

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        self.singles += 1
        return super().keyword(text, search)

    def batch(self, asked: Sequence[EngineQuery]) -> Call[list[list[Candidate]]] | None:
        answer = super().batch(asked)
        self.singles -= len(asked)  # the fake makes a batch of single searches
        self.batches.append(len(asked))
        return answer


def many(retriever: Retriever, queries: Sequence[Query | str]) -> list[list[str]]:
    return [node_ids(hits) for hits in retriever.retrieve_many(queries, at_once=100)]


def amany(retriever: Retriever, queries: Sequence[Query | str]) -> list[list[str]]:
    answers = asyncio.run(retriever.aretrieve_many(queries, at_once=100))
    return [node_ids(hits) for hits in answers]


ways = pytest.mark.parametrize("retrieve_many", [many, amany])


def vector(backend: Counting) -> Retriever:
    return VectorRetriever(backend, embed_model=MODEL, top_k=3)


def keyword(backend: Counting) -> Retriever:
    return KeywordRetriever(backend, top_k=3)


def hybrid(backend: Counting) -> Retriever:
    return HybridRetriever(backend, embed_model=MODEL, top_k=3)


def keyword_side_of_hybrid(backend: Counting) -> Retriever:
    return HybridRetriever(backend, top_k=3, alpha=0.0)


def reranked(backend: Counting) -> Retriever:
    return RerankRetriever(vector(backend), RuleRerank(), top_k=2)


def cut_fusion(backend: Counting) -> Retriever:
    return (vector(backend) | keyword(backend)) >> RRF() >> Top(2)


@ways
@pytest.mark.parametrize(
    ("made", "batches"), [(vector, 1), (keyword, 1), (hybrid, 1), (reranked, 1), (cut_fusion, 2)]
)
def test_many_queries_are_one_request_for_each_leg(
    made: Callable[[Counting], Retriever],
    batches: int,
    retrieve_many: Callable[[Retriever, Sequence[Query | str]], list[list[str]]],
) -> None:
    backend = Counting()
    retriever = made(backend)
    expected = [node_ids(retriever.retrieve(query)) for query in QUERIES]
    backend.batches.clear()
    backend.singles = 0
    assert retrieve_many(retriever, QUERIES) == expected
    assert (len(backend.batches), backend.singles) == (batches, 0)


@ways
def test_a_leg_that_is_switched_off_is_not_asked(
    retrieve_many: Callable[[Retriever, Sequence[Query | str]], list[list[str]]],
) -> None:
    backend = Counting()
    retrieve_many(keyword_side_of_hybrid(backend), QUERIES[:3])
    assert (backend.batches, backend.singles) == ([3], 0)


def test_queries_with_a_time_limit_go_out_on_their_own() -> None:
    backend = Counting()
    many(vector(backend), [Query(text, timeout_s=9) for text in SAMPLE_QUERIES])
    assert backend.singles == len(SAMPLE_QUERIES)


def test_a_query_that_cannot_be_answered_fails_with_its_own_error() -> None:
    retriever = vector(Counting())
    with pytest.raises(DimensionMismatchError):
        many(retriever, [*SAMPLE_QUERIES, Query("x", embedding=[1.0])])


def test_nothing_is_searched_ahead_without_the_scope_that_is_required() -> None:
    backend = Counting()
    retriever = vector(backend)
    retriever.requires_scope = True
    with pytest.raises(ScopeRequiredError):
        many(retriever, list(SAMPLE_QUERIES))
    assert (sum(backend.batches), backend.singles) == (0, 0)


def test_each_scope_gets_its_own_answers() -> None:
    queries = [Query(text, scope=scope) for text in SAMPLE_QUERIES for scope in (ACME, GLOBEX)]
    for query, hits in zip(queries, hybrid(Counting()).retrieve_many(queries), strict=True):
        assert isinstance(query.scope, Scope)
        assert {hit.node.metadata["tenant_id"] for hit in hits} <= {query.scope.tenant_id}


@ways
def test_what_is_asked_twice_is_searched_once(
    retrieve_many: Callable[[Retriever, Sequence[Query | str]], list[list[str]]],
) -> None:
    backend = Counting()
    first, second, other = retrieve_many(
        vector(backend), [SAMPLE_QUERIES[0], SAMPLE_QUERIES[0], SAMPLE_QUERIES[1]]
    )
    assert first == second != other
    assert (backend.batches, backend.singles) == ([2], 0)


def test_what_was_found_ahead_is_kept_no_longer_than_it_is_needed() -> None:
    with entered(Context(Session())) as frame:
        assert len(hybrid(Counting()).retrieve_many(SAMPLE_QUERIES, at_once=2))
        assert not frame.session.prefetch


class Away(Counting):
    """A store that cannot be reached, so many times; each time is waited for."""

    def __init__(self, times: int = 10**6) -> None:
        super().__init__()
        self.waits = 0
        self.times = times

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        return Call(lambda: self._waited(super(Away, self).dense(embedding, search)))

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        return Call(lambda: self._waited(super(Away, self).keyword(text, search)))

    def batch(self, asked: Sequence[EngineQuery]) -> Call[list[list[Candidate]]] | None:
        self.batches.append(len(asked))
        found = FakeBackend(self.nodes).batch(asked)
        assert found is not None
        return Call(lambda: self._waited(found))

    def _waited(self, found: Call[T]) -> T:
        self.waits += 1
        if self.waits <= self.times:
            raise StoreUnavailableError("the server did not answer within 5 s")
        return found.function()


def over_keywords_too(backend: Counting) -> Retriever:
    """Degraded, but for what needs no store."""
    other = KeywordRetriever(FakeBackend(sample_nodes(MODEL)), top_k=3, name="other")
    return (vector(backend) | other) >> RRF()


@ways
@pytest.mark.parametrize("made", [vector, keyword, hybrid, reranked])
def test_a_store_that_is_away_is_waited_for_once_and_the_error_is_that_of_one_query(
    made: Callable[[Counting], Retriever],
    retrieve_many: Callable[[Retriever, Sequence[Query | str]], list[list[str]]],
) -> None:
    backend = Away()
    with pytest.raises(StoreUnavailableError) as alone:
        made(backend).retrieve(SAMPLE_QUERIES[0])
    backend.waits = 0
    with pytest.raises(StoreUnavailableError) as together:
        retrieve_many(made(backend), [*SAMPLE_QUERIES, SAMPLE_QUERIES[0]])
    assert backend.waits == 1
    assert str(together.value) == str(alone.value)


@ways
def test_the_degraded_answers_of_many_are_those_of_each(
    retrieve_many: Callable[[Retriever, Sequence[Query | str]], list[list[str]]],
) -> None:
    backend = Away()
    expected = [node_ids(over_keywords_too(backend).retrieve(each)) for each in SAMPLE_QUERIES]
    backend.waits = 0
    assert retrieve_many(over_keywords_too(backend), SAMPLE_QUERIES) == expected
    assert any(expected)
    assert backend.waits == 1


def test_each_query_that_is_degraded_is_told() -> None:
    with entered(Context(Session())) as frame:
        over_keywords_too(Away()).retrieve_many(SAMPLE_QUERIES)
        assert not frame.session.unreached
    assert [each.where for each in frame.session.degraded] == ["vector"] * len(SAMPLE_QUERIES)
    assert {each.reason for each in frame.session.degraded} == {
        "StoreUnavailableError: the server did not answer within 5 s"
    }


def test_a_leg_with_retries_asks_again_after_the_batch() -> None:
    backend = Away(times=1)
    leg = Leg("vector", vector(backend), retries=1, backoff_s=0.0, breaker=CircuitBreaker())
    fused = (leg | keyword(Counting())) >> RRF()
    found = [node_ids(hits) for hits in fused.retrieve_many(SAMPLE_QUERIES)]
    expected = (vector(Counting()) | keyword(Counting())) >> RRF()
    assert found == [node_ids(expected.retrieve(each)) for each in SAMPLE_QUERIES]
    assert backend.waits == 1 + len(SAMPLE_QUERIES)


class Together(FakeEmbedding):
    """Embeds several queries in one call."""

    def get_query_embedding_batch(self, queries: Sequence[str]) -> list[list[float]]:
        batches.append(list(queries))
        if self.fail is not None:
            raise self.fail
        return [FakeEmbedding(dim=self.dim).get_query_embedding(each) for each in queries]

    async def aget_query_embedding_batch(self, queries: Sequence[str]) -> list[list[float]]:
        return self.get_query_embedding_batch(queries)


batches: list[list[str]] = []


@pytest.fixture(autouse=True)
def _no_batches() -> None:
    batches.clear()


@ways
def test_a_model_that_can_embeds_all_queries_in_one_call_for_all_legs(
    retrieve_many: Callable[[Retriever, Sequence[Query | str]], list[list[str]]],
) -> None:
    model, backend = Together(), Counting()
    legs = [VectorRetriever(backend, embed_model=model, top_k=3, name=name) for name in "ab"]
    fused = (legs[0] | legs[1]) >> RRF()
    queries = [*SAMPLE_QUERIES, SAMPLE_QUERIES[0]]
    expected = [node_ids(fused.retrieve(query)) for query in queries]
    model.calls.clear()
    assert retrieve_many(fused, queries) == expected
    assert batches == [list(SAMPLE_QUERIES)]
    assert model.calls == []


def test_keyword_search_embeds_nothing_ahead() -> None:
    model = Together()
    many(HybridRetriever(Counting(), embed_model=model, alpha=0.0), SAMPLE_QUERIES)
    assert (batches, model.calls) == ([], [])


def test_a_batch_that_cannot_be_embedded_is_tried_query_by_query() -> None:
    model = Together(fail=ConnectionError("down"))
    with pytest.raises(ConnectionError, match="down"):
        many(VectorRetriever(Counting(), embed_model=model), SAMPLE_QUERIES)
    assert model.calls


def test_the_local_model_embeds_a_batch_as_it_embeds_each() -> None:
    pytest.importorskip("wordllama", reason="the extra 'local' is not installed")
    model = LocalEmbedding()
    alone = [model.get_query_embedding(each) for each in ("annual leave", "年假")]
    assert model.get_query_embedding_batch(["annual leave", "年假"]) == alone
