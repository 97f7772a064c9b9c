"""Milvus's expressions mean exactly what `matches` says, whatever stands in the metadata."""

from collections.abc import Iterator

import pytest

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not
from llama_retrieval_ext.stores.backend import Search
from llama_retrieval_ext.stores.milvus.backend import MilvusBackend
from llama_retrieval_ext.stores.milvus.opening import open_milvus
from llama_retrieval_ext.stores.milvus.store import MilvusStore
from tests.stores.filters_contract import FiltersContract
from tests.stores.milvus.hard_metadata import ODD
from tests.stores.odd_metadata import EQ, IN, matching

NODES = ODD.nodes(300, seed=7)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusStore]:
    with open_milvus(f"milvus:{tmp_path_factory.mktemp('lite')}/kb.db") as store:
        store.add(NODES)
        yield store


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusStore]:
    with open_milvus(f"milvus:{tmp_path_factory.mktemp('lite')}/kb.db") as store:
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


def test_filters_nested_too_deeply_are_refused_before_anything_is_sent(
    store: MilvusStore,
) -> None:
    condition: Condition = Compare("k", EQ, "a")
    for _ in range(20):
        condition = Not(AllOf((condition, Compare("k", EQ, "b"))))
    with pytest.raises(UnsupportedFilterError, match="nested"):
        MilvusBackend(store).dense([1.0], Search(1, condition))
