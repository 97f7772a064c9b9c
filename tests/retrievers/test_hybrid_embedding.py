"""The embedding of a hybrid search is the work of its vector leg, however searches are sent."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import StoreUnavailableError, TooFewLegsError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate, Search
from llama_retrieval_ext.stores.open import Storage
from llama_retrieval_ext.testing.corpus import SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fake_backend import EVERYTHING, FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.trace import Trace
from tests.searching import Searched

OPENS_AFTER = 5


def one_round_trip() -> Backend:
    return FakeBackend(sample_nodes(FakeEmbedding()))


def side_by_side() -> Backend:
    features = replace(EVERYTHING, one_round_trip=False)
    return FakeBackend(sample_nodes(FakeEmbedding()), features=features)


@cache
def embedded() -> EmbeddedVectorStore:
    store = EmbeddedVectorStore(":memory:")
    store.add(sample_nodes(FakeEmbedding()))
    return store


@pytest.fixture(params=[one_round_trip, side_by_side, embedded])
def store(request: pytest.FixtureRequest) -> Storage:
    made: Callable[[], Storage] = request.param
    return made()


@pytest.fixture
def down() -> FakeEmbedding:
    return FakeEmbedding(fail=ConnectionError("the model is down"))


def test_a_failing_model_is_called_once_and_keywords_answer(
    store: Storage, down: FakeEmbedding, searched: Searched
) -> None:
    result = searched(HybridRetriever(store, embed_model=down), "annual leave")
    assert down.calls == ["annual leave"]
    assert {part.leg for hit in result.hits for part in hit.contributions} == {"keyword"}
    (missing,) = result.degraded
    assert missing.where == "vector"
    assert "the model is down" in missing.reason


def test_an_open_circuit_stops_calls_of_the_model(
    store: Storage, down: FakeEmbedding, searched: Searched
) -> None:
    retriever = HybridRetriever(store, embed_model=down)
    results = [searched(retriever, "annual leave") for _ in range(OPENS_AFTER + 2)]
    assert len(down.calls) == OPENS_AFTER
    assert results[-1].hits == results[0].hits
    assert "CircuitOpenError" in results[-1].degraded[0].reason
    retriever.retrieve_many(SAMPLE_QUERIES)
    assert len(down.calls) == OPENS_AFTER


def test_a_successful_embedding_closes_the_circuit(
    store: Storage, down: FakeEmbedding, searched: Searched
) -> None:
    retriever = HybridRetriever(store, embed_model=down)
    for fail in [down.fail] * (OPENS_AFTER - 1) + [None] + [down.fail] * (OPENS_AFTER - 1):
        down.fail = fail
        searched(retriever, "annual leave")
    assert len(down.calls) == 2 * OPENS_AFTER - 1


@pytest.mark.parametrize("one_round_trip", [True, False])
def test_a_search_that_grows_for_its_documents_calls_a_failing_model_once(
    down: FakeEmbedding, searched: Searched, *, one_round_trip: bool
) -> None:
    nodes = [TextNode(id_=f"n{n}", text="leave", metadata={"lang": "en"}) for n in range(9)]
    features = replace(EVERYTHING, one_round_trip=one_round_trip)
    backend = FakeBackend(nodes, features=features)
    once_each = Collapse(1, by="lang")  # fewer values than hits to return: the search goes on
    retriever = HybridRetriever(
        backend, embed_model=down, collapse=once_each, top_k=2, candidates=1
    )
    result = searched(retriever, "leave")
    assert len(result.hits) == 1
    assert len(down.calls) == 1
    assert [part.where for part in result.degraded] == ["vector"]


class NoKeywords(FakeBackend):
    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        del text, search
        raise StoreUnavailableError("no keyword search today")


@pytest.mark.parametrize("one_round_trip", [True, False])
def test_the_error_names_both_legs_when_both_fail(
    down: FakeEmbedding, searched: Searched, *, one_round_trip: bool
) -> None:
    features = replace(EVERYTHING, one_round_trip=one_round_trip)
    backend = NoKeywords(sample_nodes(FakeEmbedding()), features=features)
    with pytest.raises(TooFewLegsError, match=r"model is down.*no keyword search") as raised:
        searched(HybridRetriever(backend, embed_model=down), "annual leave")
    assert set(raised.value.causes) == {"vector", "keyword"}
    assert len(down.calls) == 1


def parts(trace: Trace | None) -> dict[str, Trace]:
    assert trace is not None
    found = {trace.name: trace}
    for child in trace.children:
        found |= parts(child)
    return found


def test_an_explanation_notes_what_each_leg_found(store: Storage, searched: Searched) -> None:
    retriever = HybridRetriever(store, embed_model=FakeEmbedding(), top_k=2, candidates=6)
    explained = parts(retriever.explain("annual leave").trace)
    asynchronous = parts(asyncio.run(retriever.aexplain("annual leave")).trace)
    plain = parts(searched(retriever, "annual leave").trace)
    for leg in (VectorRetriever(store, embed_model=FakeEmbedding()), KeywordRetriever(store)):
        found = node_ids(leg.retrieve(Query("annual leave", top_k=6)))
        assert found
        for trace in (explained, asynchronous):
            assert (trace[leg.name].count, trace[leg.name].notes) == (
                len(found),
                {"top": found[:5]},
            )
            assert trace[leg.name].duration_s is not None
        assert (plain[leg.name].count, plain[leg.name].notes) == (len(found), {})
