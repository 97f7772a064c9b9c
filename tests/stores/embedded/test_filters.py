"""The engine's filters mean exactly what `matches` says, whatever stands in the metadata."""

from collections.abc import Iterator

import pytest
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import Compare
from llama_retrieval_ext.stores.embedded.store import EmbeddedBackend, EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.backend import Search
from tests.stores.filters_contract import FiltersContract
from tests.stores.odd_metadata import BIG, HARD_STRINGS, HUGE, NUMBERS, SIZED, STRINGS, OddMetadata

ODD = OddMetadata(strings=[*STRINGS, *HARD_STRINGS], numbers=[*NUMBERS, *BIG, *HUGE], sizes=NUMBERS)
NODES = ODD.nodes(300, seed=7)


@pytest.fixture(scope="module")
def corpus() -> Iterator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as store:
        store.add(NODES)
        yield store


@pytest.fixture(scope="module")
def changing() -> Iterator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as store:
        yield store


class TestFilters(FiltersContract[EmbeddedVectorStore]):
    odd, nodes = ODD, NODES


@pytest.mark.parametrize("operator", SIZED)
def test_sizes_beyond_exact_numbers_are_refused(
    store: EmbeddedVectorStore, operator: FilterOperator
) -> None:
    with pytest.raises(UnsupportedFilterError, match="2\\*\\*53") as caught:
        EmbeddedBackend(store).dense([1.0, 0.0], Search(1000, Compare("k", operator, 2**53)))
    assert caught.value.operator == operator.name
