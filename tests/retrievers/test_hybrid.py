"""Hybrid search of one store: in one request or two, also with nodes read last or no embedding."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import (
    ConfigurationError,
    ScopeViolationError,
    StoreUnavailableError,
    TooFewLegsError,
)
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stages.decay import with_holding
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate, HybridRankings, Search
from llama_retrieval_ext.stores.open import Storage
from llama_retrieval_ext.testing.corpus import ACME, SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fakes import EVERYTHING, FakeBackend, FakeEmbedding
from llama_retrieval_ext.trace import Trace
from tests.cases import cases
from tests.searching import Searched


@pytest.fixture(params=[True, False], ids=["one round trip", "two requests"])
def backend(request: pytest.FixtureRequest) -> FakeBackend:
    features = replace(EVERYTHING, one_round_trip=request.param)
    return FakeBackend(sample_nodes(FakeEmbedding()), features=features)


def test_a_missing_embedding_model_is_an_error_that_names_the_retriever(
    backend: FakeBackend,
) -> None:
    with pytest.raises(ConfigurationError, match="HybridRetriever has no embedding model"):
        HybridRetriever(backend).retrieve("leave")
    assert HybridRetriever(backend, alpha=0.0).retrieve("leave")


def test_alpha_beside_a_fusion_with_weights_is_refused(backend: FakeBackend) -> None:
    with pytest.raises(ConfigurationError, match="give one of them"):
        HybridRetriever(backend, alpha=0.5, fusion=RRF(weights=[1, 1]))


class StaticModel(FakeEmbedding):
    """A model that declares little trust in its vectors."""

    vector_share: ClassVar[float] = 0.25


@cases(
    ("arguments", "expected"),
    [
        ({}, {"vector": 0.5, "keyword": 1.5}),
        ({"alpha": 0.5}, {"vector": 0.5, "keyword": 0.5}),
        ({"fusion": RRF()}, {"vector": 1.0, "keyword": 1.0}),
    ],
)
def test_the_share_that_a_model_declares_counts_unless_the_caller_gives_a_fusion_or_weights(
    backend: FakeBackend, arguments: dict[str, Any], expected: dict[str, float]
) -> None:
    assert HybridRetriever(backend, embed_model=StaticModel(), **arguments).weights == expected


def scored(backend: FakeBackend, query: Query, fusion: Fusion | None = None) -> dict[str, float]:
    retriever = HybridRetriever(
        backend, embed_model=FakeEmbedding(), candidates=query.top_k or 1, fusion=fusion
    )
    return {hit.node_id: hit.get_score() for hit in retriever.retrieve(query)}


def test_scores_are_summed_from_the_last_candidate_to_the_first(backend: FakeBackend) -> None:
    query = Query("annual leave", top_k=2)  # which more than two nodes share words with
    assert scored(backend, query) == scored(backend, query, WeightedSum())


def test_keyword_scores_are_scaled_from_zero_if_all_matches_are_candidates(
    backend: FakeBackend,
) -> None:
    query = Query("annual leave", top_k=100)
    scales = {"vector": Normalisation.MIN_MAX, "keyword": Normalisation.FROM_ZERO}
    assert scored(backend, query) == scored(backend, query, WeightedSum(normalise=scales))
    assert scored(backend, query) != scored(backend, query, WeightedSum())


@pytest.mark.parametrize(("words", "counts_more"), [("leave", False), ("annual leave days", True)])
def test_keywords_count_more_the_further_the_best_score_is_ahead(
    words: str, counts_more: bool
) -> None:
    texts = ["annual leave days", *(f"leave {number}" for number in range(100, 130))]
    vectors = FakeEmbedding().get_text_embedding_batch(texts)
    nodes = [
        TextNode(id_=text, text=text, embedding=vector)
        for text, vector in zip(texts, vectors, strict=True)
    ]
    retriever = HybridRetriever(FakeBackend(nodes), embed_model=FakeEmbedding(), candidates=30)
    first = retriever.search(words).hits[0]
    weights = {part.leg: part.weight for part in first.contributions}
    assert (weights["keyword"] > retriever.weights["keyword"]) is counts_more


def test_a_fusion_that_defines_only_fuse_gets_the_hits_of_both(backend: FakeBackend) -> None:
    class OneAfterTheOther(Fusion):
        def fuse(self, rankings: Any, **_: Any) -> Any:
            return [*rankings["keyword"], *rankings["vector"]]

    retriever = HybridRetriever(
        backend, embed_model=FakeEmbedding(), fusion=OneAfterTheOther(), top_k=12
    )
    assert len(retriever.retrieve("canteen lunch")) == len(sample_nodes())


def test_min_success_makes_the_failure_of_a_search_an_error(backend: FakeBackend) -> None:
    model = FakeEmbedding(fail=ConnectionError("no model"))
    assert HybridRetriever(backend, embed_model=model).search("annual leave").degraded
    for both in (
        HybridRetriever(backend, embed_model=model, min_success=2),
        HybridRetriever(backend, embed_model=model, fusion=RRF(min_success=2)),
    ):
        with pytest.raises(TooFewLegsError, match="no model"):
            both.retrieve("annual leave")
    with pytest.raises(ConfigurationError, match="the number of legs, 1, got 2"):
        HybridRetriever(backend, embed_model=model, min_success=2, alpha=1.0)


MODEL = FakeEmbedding()


class IdsFirst(FakeBackend):
    """Remembers which nodes were read; those in ``gone`` were deleted meanwhile."""

    def __init__(self, nodes: Sequence[TextNode], *, gone: Sequence[str] = ()) -> None:
        super().__init__(nodes)
        self.gone = gone
        self.read: list[Sequence[str]] = []

    def hybrid(
        self, embedding: Sequence[float], text: str, search: Search, *, nodes_last: bool
    ) -> Call[HybridRankings]:
        both = super().hybrid(embedding, text, search, nodes_last=nodes_last)
        if not nodes_last:
            return both
        present = {node.node_id: node for node in self.nodes if node.node_id not in self.gone}

        def read(ids: Sequence[str]) -> Call[Mapping[str, Candidate]]:
            self.read.append(ids)
            return Call(
                lambda: {id_: Candidate(present[id_], 0.0) for id_ in ids if id_ in present}
            )

        return both.then(lambda found: replace(found, nodes={}, read=read))


def test_hits_are_equal_whether_nodes_are_read_with_the_rankings_or_afterwards() -> None:
    apart, together = IdsFirst(sample_nodes(MODEL)), FakeBackend(sample_nodes(MODEL))
    for text in SAMPLE_QUERIES:
        hits = HybridRetriever(apart, embed_model=MODEL, top_k=5).search(text).hits
        expected = HybridRetriever(together, embed_model=MODEL, top_k=5).search(text).hits
        assert [hit.to_dict() for hit in hits] == [hit.to_dict() for hit in expected]


def test_only_the_nodes_of_the_best_hits_are_read() -> None:
    backend = IdsFirst(sample_nodes(MODEL))
    hits = HybridRetriever(backend, embed_model=MODEL, top_k=3).retrieve(SAMPLE_QUERIES[0])
    assert backend.read == [[hit.node_id for hit in hits]]


def test_hits_that_hold_are_found_by_one_request(backend: FakeBackend) -> None:
    class Counting(FakeBackend):
        requests = 0

        def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
            self.requests += 1
            return super().dense(embedding, search)

    counting = Counting(sample_nodes(MODEL), features=backend.features)
    retriever = HybridRetriever(counting, embed_model=MODEL)
    query = Query("annual leave", top_k=3, kept={})
    expected = retriever.search("annual leave", top_k=14).hits
    ended = {hit.node_id for hit in expected[:3:2]}
    counting.requests = 0
    first: Any = run(retriever.answer(query))
    hits, holding = run(
        with_holding(
            retriever.answer,  # type: ignore[arg-type]  # it returns hits
            query,
            first,
            lambda hit: hit.node_id not in ended,
            narrowed=None,
        )
    )
    assert counting.requests == 1
    assert node_ids(hits) == node_ids(expected)
    assert holding == [hit for hit in hits if hit.node_id not in ended]


def test_a_node_deleted_between_ranking_and_reading_is_left_out() -> None:
    whole = HybridRetriever(IdsFirst(sample_nodes(MODEL)), embed_model=MODEL, top_k=3)
    first, *others = [hit.node_id for hit in whole.retrieve(SAMPLE_QUERIES[0])]
    backend = IdsFirst(sample_nodes(MODEL), gone=[first])
    hits = HybridRetriever(backend, embed_model=MODEL, top_k=3).retrieve(SAMPLE_QUERIES[0])
    assert [hit.node_id for hit in hits] == others


def test_nodes_read_after_the_ranking_are_checked_against_the_scope() -> None:
    class Leaking(IdsFirst):
        def shows(self, node: TextNode, condition: object) -> bool:
            return True

    retriever = HybridRetriever(Leaking(sample_nodes(MODEL)), embed_model=MODEL).for_scope(ACME)
    with pytest.raises(ScopeViolationError):
        retriever.retrieve(SAMPLE_QUERIES[0])


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


class Garbling(FakeEmbedding):
    """A model whose embeddings of queries are no vectors."""

    vector: Any = None

    def _get_query_embedding(self, query: str) -> list[float]:
        return self.vector  # type: ignore[no-any-return]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


@cases("vector", [[float("nan")], [float("inf"), 1.0], ["1"], [], None, [None], "abc", 3, [[1.0]]])
def test_an_embedding_of_a_model_that_is_no_vector_is_a_failure_of_the_model(
    store: Storage, searched: Searched, vector: Any
) -> None:
    model = Garbling(vector=vector * 128 if isinstance(vector, list) else vector)
    result = searched(HybridRetriever(store, embed_model=model), "annual leave")
    assert {part.leg for hit in result.hits for part in hit.contributions} == {"keyword"}
    assert [missing.where for missing in result.degraded] == ["vector"]


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


def test_a_successful_embedding_closes_the_circuit(
    store: Storage, down: FakeEmbedding, searched: Searched
) -> None:
    retriever = HybridRetriever(store, embed_model=down)
    for fail in [down.fail] * (OPENS_AFTER - 1) + [None] + [down.fail] * (OPENS_AFTER - 1):
        down.fail = fail
        searched(retriever, "annual leave")
    assert len(down.calls) == 2 * OPENS_AFTER - 1
