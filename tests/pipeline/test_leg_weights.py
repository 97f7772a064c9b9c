"""Weights of legs and the least number of legs that must answer."""

import math
from collections.abc import Callable

import pytest
from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.errors import CompositionError, ConfigurationError, TooFewLegsError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.retrievers.query_fusion import QueryFusionRetriever
from llama_retrieval_ext.stages.fusion import RRF, Max, WeightedSum
from llama_retrieval_ext.stages.selection import Top
from tests.pipeline.parts import RewriteBy, down, good, shouted
from tests.searching import Searched

a, b = good("a"), good("b")
weighted = pytest.mark.parametrize("make", [lambda weights: RRF(weights=weights), WeightedSum, Max])


@weighted
@pytest.mark.parametrize(
    ("weights", "problem"),
    [
        ((0.5,), "1 weights for 2"),
        ((1, 2, 3), "3 weights for 2"),
        ({"a": 0, "b": 0}, "all 2 weights are 0"),
        ({"a": 1, "c": 2}, "'c', which is no leg"),
    ],
    ids=repr,
)
def test_weights_that_do_not_fit_the_legs_are_refused_at_construction(
    make: Callable[..., Fusion], weights: object, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        (a | b) >> make(weights)


def test_legs_whose_weights_are_all_zero_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="all 2 weights are 0"):
        branches(Leg("a", a, weight=0), Leg("b", b, weight=0)) >> RRF()


def test_weights_of_the_fusion_replace_those_of_the_legs() -> None:
    legs = branches(Leg("a", a, weight=0.2), Leg("b", b, weight=0.8))
    assert (legs >> RRF()).weights == {"a": 0.2, "b": 0.8}
    assert (legs >> RRF(weights={"a": 3})).weights == {"a": 3.0, "b": 0.8}
    assert (legs >> RRF(weights=[1, 2])).weights == {"a": 1.0, "b": 2.0}


@weighted
@pytest.mark.parametrize(
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


def test_a_fusion_copies_its_weights() -> None:
    weights = [1.0, 2.0]
    fused = (a | b) >> RRF(weights=weights)
    before = fused.retrieve("query")
    weights[0] = 100.0
    assert fused.retrieve("query") == before


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
