"""The contract of backends fails for a backend that breaks it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import Compare, Condition, matches
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate, EngineFeatures, Search
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch, NativeFusion
from llama_retrieval_ext.testing.backend_contract import BackendContract
from llama_retrieval_ext.testing.corpus import SAMPLE_CONDITIONS, sample_nodes
from llama_retrieval_ext.testing.fakes import EVERYTHING, FakeBackend, FakeEmbedding
from llama_retrieval_ext.testing.fusion_agreement import (
    SearchCase,
    assert_fusion_agrees,
    sample_fusions,
)
from tests.cases import cases


class LeakyBackend(FakeBackend):
    def shows(self, node: TextNode, condition: Condition | None) -> bool:
        return True


class GenerousBackend(FakeBackend):
    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        return super().keyword(text, replace(search, top_k=search.top_k + 1))


class RandomTies(FakeBackend):
    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        call = super().keyword(text, search)
        return Call(lambda: sorted(call.function(), key=lambda found: -len(found.node.node_id)))


class SilentFallback(FakeBackend):
    """Answers a search that it does not declare with another one."""

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        return self.dense(FakeEmbedding().get_query_embedding(text), search)


def searches(backend: Backend) -> list[Callable[[str, Search], Call[list[Candidate]]]]:
    return [backend.keyword]


def test_a_leak_fails_the_contract() -> None:
    leaky = LeakyBackend(sample_nodes(FakeEmbedding()))
    with pytest.raises(AssertionError):
        BackendContract().test_a_scope_shows_what_belongs_to_it_and_only_that(searches(leaky))
    with pytest.raises(AssertionError):
        BackendContract().test_a_condition_keeps_exactly_what_matches_it_or_is_refused(
            leaky, searches(leaky)
        )


def test_an_operator_that_is_not_declared_and_not_refused_fails_the_contract() -> None:
    fewer = replace(EVERYTHING, operators=frozenset({FilterOperator.NE}))
    wrong = FakeBackend(sample_nodes(FakeEmbedding()), features=fewer)
    with pytest.raises(pytest.fail.Exception):
        BackendContract().test_a_condition_keeps_exactly_what_matches_it_or_is_refused(
            wrong, searches(wrong)
        )


@cases("backend", [GenerousBackend, RandomTies])
def test_a_wrong_order_or_number_fails_the_contract(backend: type[FakeBackend]) -> None:
    wrong = backend(sample_nodes(FakeEmbedding()))
    with pytest.raises(AssertionError):
        BackendContract().test_there_are_at_most_top_k_best_first_and_ties_go_by_node_id(
            searches(wrong)
        )


def test_a_silent_fallback_fails_the_contract() -> None:
    model = FakeEmbedding()
    wrong = SilentFallback(sample_nodes(model), features=EngineFeatures(dense=EVERYTHING.dense))
    with pytest.raises(pytest.fail.Exception):
        BackendContract().test_a_kind_of_search_that_is_not_declared_is_refused(wrong, model)


def test_the_sample_conditions_try_every_operator_both_ways() -> None:
    nodes = sample_nodes()
    counts = {
        name: sum(matches(condition, node.metadata) for node in nodes)
        for name, condition in SAMPLE_CONDITIONS.items()
    }
    tried = {
        condition.operator
        for condition in SAMPLE_CONDITIONS.values()
        if isinstance(condition, Compare)
    }
    assert tried == set(FilterOperator)
    assert counts["EQ a whole number"] == 3
    assert counts["NE on a field that no node has"] == len(nodes)
    assert counts["IN nothing"] == counts["EQ a number written as a string"] == 0
    assert sum(0 < count < len(nodes) for count in counts.values()) > 30


MODEL = FakeEmbedding()
CASE = SearchCase(MODEL.get_query_embedding("annual leave"), "annual leave days", Search(4))


class OtherScores(FakeBackend):
    """Fuses with a wrong weight."""

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        return super().fused(embedding, text, search, replace(how, weights=(1.0, 9.0)))


NATIVE = (
    NativeFusion(kind=RRF),
    NativeFusion(kind=WeightedSum, scales=(Normalisation.MIN_MAX, Normalisation.MIN_MAX)),
)
FEATURES = replace(EVERYTHING, fusions=NATIVE)
fusions = cases("how", [how for native in NATIVE for how in sample_fusions(native, candidates=10)])


@fusions
def test_our_own_fusion_agrees(how: FusedSearch) -> None:
    assert_fusion_agrees(FakeBackend(sample_nodes(MODEL), features=FEATURES), CASE, how)


@fusions
def test_a_fusion_with_other_weights_does_not_agree(how: FusedSearch) -> None:
    with pytest.raises(AssertionError):
        assert_fusion_agrees(OtherScores(sample_nodes(MODEL), features=FEATURES), CASE, how)
