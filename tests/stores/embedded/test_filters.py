"""The engine's filters mean exactly what `matches` says, whatever stands in the metadata."""

from collections.abc import Iterator
from itertools import product

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.execution.context import call
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.filters import ORDER_OPERATORS, Compare
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.backend import Search
from tests.stores.filters_contract import FiltersContract
from tests.stores.odd_metadata import BIG, HARD_STRINGS, NUMBERS, STRINGS, OddMetadata, matching

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


def test_a_number_of_17_digits_is_found_beside_texts_and_in_an_index() -> None:
    numbers = [0.9452706955539223, 0.38120423768821243, 0.1 + 0.2, 0.3, 2.0**70, 1e300]
    values = ["text", *numbers, *range(1, 100)]
    nodes = [
        TextNode(id_=str(at), text="t", metadata={"k": value}, embedding=[1.0, 0.0])
        for at, value in enumerate(values)
    ]
    with EmbeddedVectorStore(":memory:", index="hnsw") as store:
        store.add(nodes)
        for is_indexed in (False, True):
            assert not is_indexed or store.build_index()
            for number, operator in product(numbers, [*ORDER_OPERATORS, FilterOperator.EQ]):
                condition = Compare("k", operator, number)
                hits = run(call(store.dense([1.0, 0.0], Search(200, condition))))
                assert {hit.node_id for hit in hits} == matching(nodes, condition), condition
