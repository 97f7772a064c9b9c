"""Selectors by themselves: rules, embeddings, and one after the other."""

import copy
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.schema import QueryBundle
from llama_index.core.tools import ToolMetadata

from llama_retrieval_ext import Query, RuleSelector
from llama_retrieval_ext.errors import ConfigurationError, ExecutionError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.retrievers.routing.selectors import (
    CascadeSelector,
    Choice,
    EmbeddingSelector,
    Selection,
    Selector,
    as_selector,
)
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases
from tests.retrievers.routing.sample_routes import CHOICES, Selected


def names(selections: Sequence[Selection]) -> list[str]:
    return [selection.name for selection in selections]


def test_an_embedding_selector_picks_the_nearest_description(select: Selected) -> None:
    selector = EmbeddingSelector(FakeEmbedding())
    (found,) = select(selector, "sick leave")
    assert found.name == "leave"
    assert found.confidence == pytest.approx((1 + float(found.reason)) / 2, abs=0.01)
    assert names(select(selector, "lunch")) == ["food"]


def test_descriptions_of_routes_are_embedded_once(select: Selected) -> None:
    model = FakeEmbedding()
    selector = EmbeddingSelector(model)
    for query in ("sick leave", "lunch", "functions"):
        select(selector, query)
    assert model.calls == [
        *(choice.description for choice in CHOICES),
        "sick leave",
        "lunch",
        "functions",
    ]


def test_one_route_is_picked_even_if_several_are_equally_near(select: Selected) -> None:
    found = select(EmbeddingSelector(FakeEmbedding()), "and")  # each description has it once
    assert len(found) == 1


def test_an_embedding_selector_abstains_below_min_similarity(select: Selected) -> None:
    assert select(EmbeddingSelector(FakeEmbedding(), min_similarity=0.9), "sick leave") == []
    assert select(EmbeddingSelector(FakeEmbedding()), "") == []


def test_an_embedding_selector_abstains_for_a_zero_embedding(select: Selected) -> None:
    class Clueless(FakeEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            return [0.0] * self.dim

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return [0.0] * self.dim

    assert select(EmbeddingSelector(Clueless(), min_similarity=-1.0), "word") == []


def test_a_model_whose_embedding_is_nan_is_named(select: Selected) -> None:
    class Broken(FakeEmbedding):
        def _embed(self, text: str) -> list[float]:
            return [float("nan")] * self.dim if "functions" in text else super()._embed(text)

    with pytest.raises(ExecutionError, match="Broken gave an embedding"):
        select(EmbeddingSelector(Broken()), "sick leave")


def test_the_embedding_of_the_query_is_not_compared_with_those_of_another_model(
    select: Selected,
) -> None:
    query = Query("sick leave", embedding=[1.0, 0.0])
    assert names(select(EmbeddingSelector(FakeEmbedding()), query)) == ["leave"]


@dataclass
class Scripted(Selector):
    """Says what it is made with, and counts."""

    said: Sequence[str] | Exception
    calls: int = 0

    def select(self, query: Query, choices: Sequence[Choice]) -> list[Selection]:
        self.calls += 1
        if isinstance(self.said, Exception):
            raise self.said
        return [Selection(name) for name in self.said]


@cases(("picks", "expected"), [(1, "code"), ("food", "food"), ([2], "food"), ([], None)])
def test_a_selector_may_return_an_index_or_a_name(
    picks: Any, expected: str | None, select: Selected
) -> None:
    class Own(Selector):
        def select(self, query: Query, choices: Sequence[Choice]) -> Any:
            return picks

    class Duck:
        def select(self, query: Query, choices: Sequence[Choice]) -> Any:
            return picks

    class AsyncDuck:
        async def select(self, query: Query, choices: Sequence[Choice]) -> Any:
            return picks

    for selector in (Own(), as_selector(Duck(), "selector"), as_selector(AsyncDuck(), "selector")):
        assert names(select(selector, "query")) == ([] if expected is None else [expected])


def test_an_index_out_of_range_is_an_error(select: Selected) -> None:
    class Own(Selector):
        def select(self, query: Query, choices: Sequence[Choice]) -> int:
            return 3

    with pytest.raises(ExecutionError, match="picked route 3; there are 0 to 2"):
        select(Own(), "query")


class AsyncOnly(BaseSelector):
    """A LlamaIndex selector without a blocking method, and without an `await`."""

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None: ...

    def _select(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        raise NotImplementedError

    async def _aselect(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        return SelectorResult(selections=[SingleSelection(index=1, reason="async")])


def test_a_selector_with_only_an_async_method_is_used(select: Selected) -> None:
    assert names(select(as_selector(AsyncOnly(), "selector"), "query")) == ["code"]


def test_a_cascade_stops_at_the_first_selector_that_picks(select: Selected) -> None:
    first, second, third = Scripted([]), Scripted(["code", "food"]), Scripted(["leave"])
    assert names(select(CascadeSelector(first, second, third), "query")) == ["code", "food"]
    assert [each.calls for each in (first, second, third)] == [1, 1, 0]


def test_a_selector_of_a_cascade_that_fails_abstains(select: Selected) -> None:
    broken = Scripted(ValueError("broken"))
    assert names(select(CascadeSelector(broken, Scripted(["code"])), "query")) == ["code"]
    assert select(CascadeSelector(broken), "query") == []


def test_a_cascade_needs_a_selector_and_prints_its_own() -> None:
    with pytest.raises(ConfigurationError, match="at least one selector"):
        CascadeSelector()
    model = FakeEmbedding()
    cascade = CascadeSelector(RuleSelector([]), EmbeddingSelector(model))
    assert repr(cascade) == (
        "CascadeSelector(RuleSelector([]), EmbeddingSelector(FakeEmbedding(...)))"
    )


def test_a_selector_by_embedding_can_be_copied_and_pickled() -> None:
    selector = EmbeddingSelector(FakeEmbedding())
    for again in (copy.deepcopy(selector), pickle.loads(pickle.dumps(selector))):
        assert repr(again) == repr(selector)
        plans = [each.select_plan(Query("sick leave"), CHOICES) for each in (again, selector)]
        assert run(plans[0]) == run(plans[1])
