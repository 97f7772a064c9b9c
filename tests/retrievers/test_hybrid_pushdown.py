"""Hybrid search whose fusion is the engine's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import RRF, HybridRetriever, WeightedSum
from llama_retrieval_ext.errors import ScopeViolationError, UnsupportedModeError
from llama_retrieval_ext.execution import Call
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.engine.backend import Candidate, EngineFeatures, Search
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch, NativeFusion
from llama_retrieval_ext.testing.corpus import ACME, SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fakes import EVERYTHING, FakeBackend, FakeEmbedding
from tests.cases import cases

MODEL = FakeEmbedding()
FUSES = replace(EVERYTHING, fusions=(NativeFusion(kind=RRF, equal_weights=True),))


class Fusing(FakeBackend):
    """An engine that fuses, and records its requests."""

    def __init__(self, nodes: Sequence[TextNode], **options: Any) -> None:
        super().__init__(nodes, features=FUSES, **options)
        self.requests: list[tuple[Search, FusedSearch]] = []

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        self.requests.append((search, how))
        return super().fused(embedding, text, search, how)


class Leaking(Fusing):
    """And shows everybody everything."""

    def shows(self, node: TextNode, condition: Condition | None) -> bool:
        return True


def hybrid(backend: FakeBackend, **options: Any) -> HybridRetriever:
    return HybridRetriever(backend, **{"embed_model": MODEL, "fusion": RRF(), **options})


def test_pushdown_requests_only_the_best_hits_once() -> None:
    backend = Fusing(sample_nodes(MODEL))
    hits = hybrid(backend, pushdown=True, candidates=70).for_scope(ACME).retrieve(SAMPLE_QUERIES[0])
    ((search, how),) = backend.requests
    assert search == Search(10, ACME.condition, ACME)
    assert how == FusedSearch(RRF(), (1.0, 1.0), 70)
    assert hits


def test_pushdown_finds_the_hits_of_our_own_fusion_without_contributions() -> None:
    backend = Fusing(sample_nodes(MODEL))
    ours = hybrid(backend, fusion=RRF()).search(SAMPLE_QUERIES[0])
    pushed = hybrid(backend, pushdown=True).search(SAMPLE_QUERIES[0])
    assert [(hit.node_id, hit.score) for hit in pushed.hits] == [
        (hit.node_id, hit.score) for hit in ours.hits
    ]
    assert all(hit.contributions for hit in ours.hits)
    assert not any(hit.contributions for hit in pushed.hits)


def test_a_query_and_the_repr_do_not_describe_the_engine() -> None:
    class Describing(Fusing):
        def describe(self) -> Mapping[str, object]:
            raise AssertionError("a request on some engines")

    retriever = hybrid(Describing(sample_nodes(MODEL)), pushdown=True)
    assert retriever.retrieve(SAMPLE_QUERIES[0])
    assert repr(retriever).startswith("HybridRetriever(Describing(...), ")


def test_the_trace_says_that_the_engine_fused() -> None:
    backend = Fusing(sample_nodes(MODEL))
    apart = FakeBackend(backend.nodes, features=replace(FUSES, one_round_trip=False))
    traces = [
        str(hybrid(each, pushdown=pushdown).explain("leave").trace)
        for each, pushdown in ((backend, True), (backend, False), (apart, False))
    ]
    steps = ["fusion in the engine by RRF()", "search in one round trip", "keyword"]
    assert [[step in trace for step in steps] for trace in traces] == [
        [True, False, False],
        [False, True, True],
        [False, False, True],
    ]


def test_hits_that_the_engine_fused_are_checked_against_the_scope() -> None:
    retriever = hybrid(Leaking(sample_nodes(MODEL)), pushdown=True).for_scope(ACME)
    with pytest.raises(ScopeViolationError):
        retriever.retrieve(SAMPLE_QUERIES[0])


def test_pushdown_without_an_embedding_answers_by_keywords_and_is_degraded() -> None:
    model = FakeEmbedding(fail=ConnectionError("no model"))
    backend = Fusing(sample_nodes(MODEL))
    result = hybrid(backend, embed_model=model, pushdown=True).search("annual leave")
    assert result.hits
    assert result.degraded
    assert not backend.requests


@cases("options", [{"fusion": None}, {"fusion": WeightedSum()}, {"alpha": 0.7}])
def test_a_fusion_that_the_engine_lacks_is_refused_with_those_it_has(
    options: dict[str, Any],
) -> None:
    backend = Fusing(sample_nodes(MODEL))
    with pytest.raises(UnsupportedModeError, match=r"use RRF\(k=.*leave pushdown out"):
        hybrid(backend, pushdown=True, **options)
    assert hybrid(backend, **options).retrieve("leave")


def test_pushdown_is_refused_when_the_collection_has_changed_its_distance() -> None:
    """As one does whose index another process made with another distance."""

    class Changing(Fusing):
        fusions = FUSES.fusions

        @property
        def features(self) -> EngineFeatures:
            return replace(FUSES, fusions=self.fusions)

    backend = Changing(sample_nodes(MODEL))
    retriever = hybrid(backend, pushdown=True)
    assert retriever.retrieve("leave")
    backend.fusions = ()
    with pytest.raises(UnsupportedModeError, match="leave pushdown out"):
        retriever.retrieve("leave")
