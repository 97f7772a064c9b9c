"""Fusions as users write them, and what a fusion does with hits that have no score."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, get_args

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode

from llama_retrieval_ext import Hit, Retriever, Top, branches
from llama_retrieval_ext.errors import (
    CompositionError,
    ConfigurationError,
    ExecutionError,
    ScoreError,
    TooFewLegsError,
)
from llama_retrieval_ext.execution import Leg
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.hits import node_ids, score_of, scored_ids
from llama_retrieval_ext.pipeline.fusion import Fusion, Unscored
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever
from llama_retrieval_ext.retrievers import QueryFusionRetriever
from llama_retrieval_ext.stages import RRF, Max, WeightedSum
from llama_retrieval_ext.testing import FakeRetriever, FixedRetriever
from tests.cases import cases
from tests.pipeline.parts import RewriteBy, down, good, shouted
from tests.searching import Searched

Rankings: TypeAlias = Mapping[str, Sequence[NodeWithScore]]
by_scores = pytest.mark.parametrize(
    "make", [WeightedSum, partial(WeightedSum, normalise=Normalisation.DISTRIBUTION_BASED), Max]
)


def ranking(*rows: tuple[str, float | None]) -> list[NodeWithScore]:
    return FakeRetriever(rows).hits


def scores(hits: Sequence[Hit]) -> dict[str, float | None]:
    return {hit.node.node_id: hit.score for hit in hits}


class Reversed(Fusion):
    """The legs one after the other, in reverse."""

    def fuse(self, rankings: Rankings) -> list[NodeWithScore]:  # type: ignore[override]
        return [hit for name in [*rankings][::-1] for hit in rankings[name]]


def test_a_fusion_returns_a_ranking(searched: Searched) -> None:
    x, y = FixedRetriever([("a", 0.9), ("b", 0.8)]), FixedRetriever([("b", 5.0), ("c", 7.0)])
    result = searched((x | y) >> Reversed() >> Top(2), "q")
    assert node_ids(result.hits) == ["c", "b"]
    assert score_of(result.hits[0]) >= score_of(result.hits[1])


def test_a_fusion_without_weights_refuses_a_weighted_leg() -> None:
    weighted = branches(Leg("a", good(), weight=2.0), b=good())
    with pytest.raises(ConfigurationError, match="takes no weights"):
        (weighted >> Reversed()).search("q")


class Shifted(RRF):
    """RRF with another method around it."""

    def fuse(self, rankings: Rankings, **options: Any) -> list[Hit]:
        return super().fuse(rankings, **options)


def test_a_fusion_that_extends_another_gets_the_weights_of_the_legs_that_answered() -> None:
    legs = branches(a=good(), b=FakeRetriever(error=OSError("down")), c=Leg("c", good(), weight=0))
    result = (legs >> Shifted()).search("q")
    assert node_ids(result.hits) == node_ids((good() >> Top(9)).search("q").hits)
    assert [each.where for each in result.degraded] == ["b"]


def test_weights_of_a_call_name_some_of_the_legs_and_no_others() -> None:
    legs = {
        "x": [NodeWithScore(node=TextNode(id_="a"))],
        "y": [NodeWithScore(node=TextNode(id_="b"))],
    }
    assert scored_ids(RRF(k=0).fuse(legs, weights={"y": 2.0})) == [("b", 2.0), ("a", 1.0)]
    with pytest.raises(ConfigurationError, match="'z', which is no leg"):
        RRF().fuse(legs, weights={"z": 2.0})
    with pytest.raises(ConfigurationError, match="top_k"):
        RRF().fuse(legs, top_k=0)
    with pytest.raises(ConfigurationError, match="k must be"):
        RRF(k="60")  # type: ignore[arg-type]


@cases(
    ("found", "message"),
    [
        (None, "Own.fuse must return a list of hits"),
        ([NodeWithScore(node=TextNode(id_="x"), score=1.0)], "'x', which no leg found"),
        ([NodeWithScore(node=TextNode(id_="a"), score=math.inf)], "the score inf"),
    ],
)
def test_a_fusion_that_returns_no_ranking_of_the_hits_is_an_error(
    found: object, message: str
) -> None:
    class Own(Fusion):
        def fuse(self, rankings: Rankings) -> list[NodeWithScore]:  # type: ignore[override]
            return found  # type: ignore[return-value]

    with pytest.raises((ConfigurationError, ExecutionError, ScoreError), match=message):
        ((good() | good()) >> Own()).retrieve("q")


@by_scores
@cases("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_refused(make: Callable[..., Fusion], bad: float) -> None:
    legs = {"x": ranking(("a", 0.9), ("b", bad))}
    for unscored in get_args(Unscored):
        with pytest.raises(ScoreError, match="'b'"):
            make(unscored=unscored).fuse(legs)


@by_scores
def test_a_hit_without_a_score_is_refused_left_out_or_counts_zero(
    make: Callable[..., Fusion],
) -> None:
    mixed = {"x": ranking(("a", 0.9), ("b", None), ("c", 0.5)), "y": ranking(("d", 0.9))}
    with pytest.raises(ScoreError, match="'b'"):
        make().fuse(mixed)
    without = {"x": ranking(("a", 0.9), ("c", 0.5)), "y": mixed["y"]}
    left_out = make(unscored="leave_out").fuse(mixed)
    assert scores(left_out) == scores(make().fuse(without))
    kept = scores(make(unscored="zero").fuse(mixed))
    assert kept == {**scores(left_out), "b": 0.0}


@by_scores
def test_hits_of_a_leg_without_any_score_keep_their_order_or_are_left_out(
    make: Callable[..., Fusion],
) -> None:
    bare = ranking(("z", None), ("a", None), ("m", None))
    legs = {"x": ranking(("k", 2.0), ("j", 1.0)), "y": bare}
    assert "z" not in scores(make(unscored="leave_out").fuse(legs))
    for found in (make(unscored="zero").fuse(legs), make(unscored="zero").fuse({"y": bare})):
        assert [id_ for id_ in scores(found) if id_ in "zam"] == ["z", "a", "m"]


a, b = good("a"), good("b")
weighted = pytest.mark.parametrize("make", [lambda weights: RRF(weights=weights), WeightedSum, Max])


@weighted
@cases(
    ("weights", "problem"),
    [
        ((0.5,), "1 weights for 2"),
        ((1, 2, 3), "3 weights for 2"),
        ({"a": 0, "b": 0}, "all 2 weights are 0"),
        ({"a": 1, "c": 2}, "'c', which is no leg"),
    ],
)
def test_weights_that_do_not_fit_the_legs_are_refused_at_construction(
    make: Callable[..., Fusion], weights: object, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        (a | b) >> make(weights)


def test_weights_of_the_fusion_replace_those_of_the_legs() -> None:
    legs = branches(Leg("a", a, weight=0.2), Leg("b", b, weight=0.8))
    assert (legs >> RRF()).weights == {"a": 0.2, "b": 0.8}
    assert (legs >> RRF(weights={"a": 3})).weights == {"a": 3.0, "b": 0.8}
    assert (legs >> RRF(weights=[1, 2])).weights == {"a": 1.0, "b": 2.0}


@weighted
@cases(
    ("weights", "problem"),
    [
        ({"vector": -1}, "the weight of leg 'vector' is -1"),
        ({"vector": math.nan}, "the weight of leg 'vector' is nan"),
        ({"vector": "much"}, "the weight of leg 'vector' is 'much'"),
        ((1.0, -1.0), "weight 1 is -1"),
        ((1.0, math.inf), "weight 1 is inf"),
        ((0.0, 0.0), "all 2 weights are 0"),
        (0.5, "a mapping by leg name or a list"),
    ],
)
def test_a_fusion_refuses_invalid_weights(
    make: Callable[..., Fusion], weights: object, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        make(weights)


def test_min_success_out_of_range_or_set_twice_is_refused() -> None:
    wrong: list[Callable[[], object]] = [
        lambda: RRF(min_success=-1),
        lambda: WeightedSum(min_success=1.5),  # type: ignore[arg-type]
        lambda: WeightedSum(min_success=-1),
        lambda: (a | b) >> RRF(min_success=3),
        lambda: FusionRetriever(a | b, RRF(), min_success=-1),
        lambda: FusionRetriever(a | b, RRF(), min_success=3),
        lambda: branches(a, b, min_success=3),
        lambda: branches(a, b, min_success=1) >> RRF(min_success=2),
    ]
    for make in wrong:
        with pytest.raises(ConfigurationError, match="min_success"):
            make()
    with pytest.raises(CompositionError, match="min_success is 1 here and 2 there"):
        branches(a, b, min_success=1) | branches(a, b, min_success=2)


def test_min_success_can_be_set_on_legs_fusions_and_retrievers(searched: Searched) -> None:
    made: list[Callable[[BaseRetriever], Retriever]] = [
        lambda other: branches(a, other) >> RRF(min_success=2),
        lambda other: branches(a, other) >> WeightedSum(min_success=2),
        lambda other: branches(a, other, min_success=2) >> RRF(),
        lambda other: branches(a, other, min_success=2) >> RRF() >> Top(5),
        lambda other: RewriteBy(shouted) >> (branches(a, other, min_success=2) >> RRF()) >> Top(5),
        lambda other: RewriteBy(shouted) >> branches(a, other) >> RRF(min_success=2),
        lambda other: QueryFusionRetriever([a, other], mode=RRF(min_success=2), num_queries=1),
        lambda other: QueryFusionRetriever([a, other], num_queries=1, min_success=2),
    ]
    for make in made:
        assert searched(make(b), "query").degraded == ()
        with pytest.raises(TooFewLegsError, match=r"1 of 2 legs answered, at least 2 must"):
            searched(make(down()), "query")
    three = (branches(a, down(), min_success=2) | down()) >> RRF()
    with pytest.raises(TooFewLegsError, match=r"1 of 3 legs answered, at least 2 must"):
        searched(three, "query")


def test_a_fusion_copies_its_weights() -> None:
    weights = [1.0, 2.0]
    fused = (a | b) >> RRF(weights=weights)
    before = fused.retrieve("query")
    weights[0] = 100.0
    assert fused.retrieve("query") == before
