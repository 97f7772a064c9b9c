"""Milvus's expressions mean exactly what `matches` says, whatever stands in the metadata."""

from collections.abc import Iterator

import pytest
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.milvus.store import MilvusStore, open_milvus
from tests.stores.filters_contract import FiltersContract
from tests.stores.milvus.conftest import PLACES, place
from tests.stores.milvus.hard_metadata import ODD
from tests.stores.odd_metadata import EQ, IN, matching

pytestmark = pytest.mark.slow

NODES = ODD.nodes(300, seed=7)


@pytest.fixture(scope="module", params=PLACES)
def changing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MilvusStore]:
    with (
        place(request.param, request, tmp_path_factory.mktemp("lite")) as url,
        open_milvus(url) as store,
    ):
        yield store


@pytest.fixture(scope="module", params=PLACES)
def corpus(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MilvusStore]:
    with (
        place(request.param, request, tmp_path_factory.mktemp("lite")) as url,
        open_milvus(url) as store,
    ):
        store.add(NODES)
        yield store


class TestFilters(FiltersContract[MilvusStore]):
    odd, nodes = ODD, NODES

    def test_a_filter_as_deep_as_allowed_is_answered(self, corpus: MilvusStore) -> None:
        condition: Condition = Compare("k", EQ, "a")
        for number in range(14):
            condition = Not(AnyOf((condition, Compare("k", EQ, number))))
        assert self.found(corpus, [condition]) == [matching(NODES, condition)]

    def test_many_values_are_answered(self, corpus: MilvusStore) -> None:
        condition = Compare("k", IN, (*map(str, range(5000)), "a", 3))
        assert self.found(corpus, [condition]) == [matching(NODES, condition)]

    @pytest.mark.parametrize("group", [AnyOf, AllOf])
    def test_many_parts_are_answered(self, corpus: MilvusStore, group: type[AnyOf | AllOf]) -> None:
        how = EQ if group is AnyOf else FilterOperator.NE
        others = (Compare("other", how, value) for value in (*map(str, range(1000)), "a"))
        condition = group((Compare("k", how, "a"), *others))
        assert self.found(corpus, [condition]) == [matching(NODES, condition)]


def test_filters_nested_too_deeply_are_refused_before_anything_is_sent(store: MilvusStore) -> None:
    condition: Condition = Compare("k", EQ, "a")
    for _ in range(20):
        condition = Not(AllOf((condition, Compare("k", EQ, "b"))))
    with pytest.raises(UnsupportedFilterError, match="nested"):
        store.dense([1.0], Search(1, condition))
