"""What holds for every pipeline, whatever its parts: checked on small random rankings."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext import Hit, Query, Refine, Retriever, branches
from llama_retrieval_ext.execution import Plan
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.hits import node_ids, score_of
from llama_retrieval_ext.pipeline import Fusion
from llama_retrieval_ext.pipeline.chains import FusionChain
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.stages import RRF, Max, Threshold, Top, WeightedSum
from llama_retrieval_ext.testing import FixedRetriever
from tests.cases import cases
from tests.pipeline.parts import Each, Say
from tests.quick import examples

Ranking = list[tuple[str, float]]
# Parts are few and rankings short: what breaks a law is found early.
few = examples(20)


@dataclass(frozen=True, slots=True)
class Halve(Refine):
    """Halves the scores; checks that it gets the original query."""

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        assert query.query_str == "query"
        return [hit.model_copy(update={"score": score_of(hit) / 2}) for hit in hits]


class Echo(Retriever):
    """Finds one node, named after its query, and fixed ones."""

    def __init__(self, rows: Ranking, name: str) -> None:
        super().__init__(top_k=10, name=name)
        self.inner = FixedRetriever(rows, name=name)

    def plan(self, query: Query) -> Plan[list[Hit]]:
        found = yield from self.inner.plan(query)
        (echo,) = FixedRetriever([(query.query_str, 2.0)]).hits
        return [Hit(node=echo.node, score=echo.score, source=self.name), *found][: query.top_k]

    def __repr__(self) -> str:
        return self.name


rankings = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.floats(min_value=-1, max_value=1, allow_nan=False, width=32),
    max_size=6,
).map(lambda scores: list(scores.items()))
ks = st.integers(min_value=1, max_value=8)
rewrites = st.builds(Say, st.sampled_from(["x", "y"]))
refines = st.one_of(
    st.builds(Top, ks),
    st.builds(Threshold, st.floats(min_value=-1, max_value=1, allow_nan=False)),
    st.just(Halve()),
)
# Each gives the same whatever the order of the legs.
SYMMETRIC: tuple[Fusion, ...] = (
    RRF(),
    RRF(k=1),
    WeightedSum(),
    WeightedSum(normalise=Normalisation.DISTRIBUTION_BASED),
    Max(),
)
fusions = st.sampled_from(SYMMETRIC)


def found(retriever: Retriever) -> list[tuple[str, float | None]]:
    return [(hit.node.node_id, hit.score) for hit in retriever.retrieve("query")]


def assert_same(first: Retriever, second: Retriever) -> None:
    """They print the same, look the same and find the same."""
    assert repr(first) == repr(second)
    assert first.outline() == second.outline()
    assert found(first) == found(second)


@few
@given(rankings, rewrites, rewrites, refines, refines)
def test_then_is_associative_around_a_retriever(
    rows: Ranking, first: Say, second: Say, third: Refine, fourth: Refine
) -> None:
    a = Echo(rows, "a")
    expected = first >> second >> a >> third >> fourth
    assert_same(expected, first >> (second >> (a >> (third >> fourth))))
    assert_same(expected, (first >> second) >> (a >> third) >> fourth)
    assert_same(expected, (first >> (second >> a)) >> (third >> fourth))
    assert_same(expected, first >> ((second >> a) >> third) >> fourth)


@pytest.mark.slow
@few
@given(rankings, rankings, rewrites, rewrites, fusions, refines, refines)
def test_then_is_associative_around_branches(  # noqa: PLR0917 - one of each kind
    one: Ranking, two: Ranking, first: Say, second: Say, fusion: Fusion, third: Refine, last: Refine
) -> None:
    a, b = Echo(one, "a"), Echo(two, "b")
    expected = first >> second >> (a | b) >> fusion >> third >> last
    assert_same(expected, first >> (second >> (a | b)) >> (fusion >> (third >> last)))
    assert_same(expected, (first >> second) >> (a | b) >> (fusion >> third >> last))
    assert_same(expected, first >> (second >> (a | b)) >> (fusion >> third) >> last)
    assert_same(expected, (first >> second >> (a | b) >> fusion) >> (third >> last))


@pytest.mark.slow
@few
@given(rankings, rankings, rewrites, rewrites, fusions, refines)
def test_then_is_associative_around_a_fan_out(
    one: Ranking, two: Ranking, first: Say, second: Say, fusion: Fusion, last: Refine
) -> None:
    a, b = Echo(one, "a"), Echo(two, "b")
    each = Each(("x", "y"))
    expected = first >> second >> each >> (a | b) >> fusion >> last
    assert_same(expected, (first >> (second >> each)) >> (a | b) >> (fusion >> last))
    assert_same(expected, first >> ((second >> each) >> (a | b)) >> fusion >> last)
    assert_same(expected, first >> (second >> (each >> (a | b)) >> (fusion >> last)))
    alone = first >> second >> each >> a >> fusion
    assert_same(alone, first >> (second >> (each >> a)) >> fusion)
    assert_same(alone, ((first >> second) >> each) >> a >> fusion)


@pytest.mark.slow
@few
@given(st.tuples(*(rankings.map(partial(FixedRetriever, name=name)) for name in "abc")), fusions)
def test_branches_are_flat_and_their_order_does_not_change_a_symmetric_fusion(
    legs: tuple[FixedRetriever, FixedRetriever, FixedRetriever], fusion: Fusion
) -> None:
    a, b, c = legs
    assert_same((a | b | c) >> fusion, (a | (b | c)) >> fusion)
    assert_same((a | b | c) >> fusion, ((a | b) | c) >> fusion)
    assert_same((a | b | c) >> fusion, branches(a, b, c) >> fusion)
    assert found((a | b | c) >> fusion) == found((c | a | b) >> fusion)
    assert found((a | b | c) >> fusion) == found((b | a | c) >> fusion)


@few
@given(rankings, ks, ks)
def test_two_cuts_are_the_smaller(rows: Ranking, j: int, k: int) -> None:
    a = FixedRetriever(rows)
    assert found(a >> Top(j) >> Top(k)) == found(a >> Top(min(j, k)))


@few
@given(rankings, ks)
def test_a_cut_is_a_prefix(rows: Ranking, k: int) -> None:
    a = FixedRetriever(rows)
    assert found(a >> Top(k)) == found(a)[:k]


@few
@given(rankings, rankings, fusions)
def test_a_fusion_is_a_ranking_of_what_the_legs_found(
    one: Ranking, two: Ranking, fusion: Fusion
) -> None:
    a, b = FixedRetriever(one), FixedRetriever(two)
    hits = ((a | b) >> fusion).retrieve("query")
    keys = [(-score_of(hit), hit.node.node_id) for hit in hits]
    assert keys == sorted(set(keys))
    assert all(math.isfinite(score_of(hit)) for hit in hits)
    legs = {*node_ids(a.retrieve("query")), *node_ids(b.retrieve("query"))}
    assert set(node_ids(hits)) == legs


@few
@given(rankings, rankings, rewrites, fusions, refines)
def test_sync_equals_async(
    one: Ranking, two: Ranking, first: Say, fusion: Fusion, last: Refine
) -> None:
    a, b = Echo(one, "a"), Echo(two, "b")
    pipeline = first >> Each(("x", "y")) >> (a | b) >> fusion >> last
    hits: list[NodeWithScore] = asyncio.run(pipeline.aretrieve("query"))
    assert [(hit.node.node_id, hit.score) for hit in hits] == found(pipeline)


HANDLE_FREE = (
    *SYMMETRIC,
    RRF(k=7.5, weights=(0.7, 0.3)),
    RRF(weights={"a": 1.0, "b": 2.0}),
    WeightedSum(weights=[1, 2], normalise=Normalisation.Z_SCORE, unscored="leave_out"),
    Max(weights={"a": 3}),
    Top(3),
    Top(3) >> Threshold(0.5) >> Top(1),
    RRF() >> Top(3),
    RRF() >> Threshold(0.25) >> Top(3),
    Say("x"),
    Say("x") >> Say("y"),
    Each(("x",)),
    Say("x") >> Say("y") >> Each(("x", "z")),
)


@cases("stage", HANDLE_FREE)
def test_the_representation_of_a_stage_is_the_expression_that_makes_it(stage: object) -> None:
    assert eval(repr(stage), globals()) == stage


@pytest.mark.slow
@few
@given(rankings, rewrites, rewrites, refines, refines)
def test_the_representation_of_a_pipeline_is_the_expression_that_makes_it(
    rows: Ranking, first: Say, second: Say, third: Refine, fourth: Refine
) -> None:
    a, b = Echo(rows, "a"), Echo(rows[::-1], "b")
    for pipeline in (
        first >> second >> a >> third >> fourth,
        first >> Each(("x",)) >> (a | b) >> RRF() >> third >> fourth,
        ((first >> a >> third | b) >> RRF() >> fourth | a) >> WeightedSum(),
    ):
        again = eval(repr(pipeline), {**globals(), "a": a, "b": b})
        assert_same(again, pipeline)


def test_composing_gives_the_documented_classes() -> None:
    a, b = FixedRetriever(name="a"), FixedRetriever(name="b")
    assert type(a >> Top(3)) is Pipeline
    assert type(Say("x") >> a) is Pipeline
    assert type((a | b) >> RRF()) is FusionRetriever
    assert type((a | b) >> (RRF() >> Top(3))) is Pipeline
    assert type(RRF() >> Top(3)) is FusionChain
    flat = Say("x") >> (Say("y") >> a >> Top(3)) >> Top(2)
    assert isinstance(flat, Pipeline)
    assert flat.source is a
    assert flat.rewrites == (Say("x"), Say("y"))
    assert flat.refines == (Top(3), Top(2))
