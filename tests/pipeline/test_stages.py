"""Stages as users write them: plain functions that return values."""

from collections.abc import Iterator, Sequence

import pytest

from llama_retrieval_ext import (
    MMR,
    CascadeSelector,
    Choice,
    Query,
    Route,
    RouterRetriever,
    Selection,
    Selector,
    Top,
)
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids, score_of
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.testing.fakes import FakeRetriever, FixedRetriever
from tests.cases import cases
from tests.pipeline.parts import RefineBy
from tests.searching import Searched

SOURCE = FixedRetriever([("a", 0.9), ("b", 0.8), ("c", 0.7)])


def test_a_refine_is_a_plain_function(searched: Searched) -> None:
    result = searched(SOURCE >> RefineBy(lambda hits: [hits[2], hits[0]]) >> Top(5), "leave")
    assert node_ids(result.hits) == ["c", "a"]
    scores = [score_of(hit) for hit in result.hits]
    assert scores == sorted(scores, reverse=True)
    assert result.degraded == ()


class Async(Refine):
    async def refine(self, query: Query, hits: Sequence[Hit]) -> Sequence[Hit]:  # type: ignore[override]
        return hits


class Generator(Refine):
    def refine(self, query: Query, hits: Sequence[Hit]) -> Iterator[Hit]:  # type: ignore[override]
        yield from hits


class Empty(Refine):
    pass


class PlanWithoutYield(Refine):
    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Sequence[Hit]:  # type: ignore[override]
        return hits


@cases(
    ("stage", "advice"),
    [
        (Async(), "refine_plan"),
        (Generator(), "name it refine_plan"),
        (Empty(), r"write `def refine\(self, query, hits\)` in Empty"),
        (PlanWithoutYield(), "is named refine"),
    ],
)
def test_a_refinement_of_another_form_is_refused_with_the_method_to_write(
    stage: Refine, advice: str
) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        (SOURCE >> stage).retrieve("q")


def test_the_plain_method_of_a_stage_that_has_only_a_plan_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"MMR has no refine: .* put it into"):
        MMR().refine(Query("q"), [])


class Fixed(Selector):
    def __init__(self, found: object) -> None:
        self.found = found

    def select(self, query: Query, choices: Sequence[Choice]) -> Sequence[Selection]:
        return self.found  # type: ignore[return-value]


def test_a_selector_returns_selections(searched: Searched) -> None:
    routes = {"x": Route(SOURCE, "x"), "y": Route(FakeRetriever([("y", 1.0)]), "y")}
    for selector in (Fixed([Selection("y")]), CascadeSelector(Fixed([]), Fixed([Selection("y")]))):
        assert node_ids(searched(RouterRetriever(selector, routes), "q").hits) == ["y"]
    for wrong in (None, [None], 1.5):
        with pytest.raises(ConfigurationError, match=r"Fixed.select must return .*Selections"):
            searched(RouterRetriever(Fixed(wrong), routes), "q")
