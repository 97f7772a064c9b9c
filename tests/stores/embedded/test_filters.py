"""The engine's filters mean exactly what `matches` says, whatever stands in the metadata."""

from collections.abc import Iterator

import pytest

from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.stores.filters_contract import FiltersContract
from tests.stores.odd_metadata import BIG, HARD_STRINGS, NUMBERS, STRINGS, OddMetadata

ODD = OddMetadata(strings=[*STRINGS, *HARD_STRINGS], numbers=[*NUMBERS, *BIG])
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
