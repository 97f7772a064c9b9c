"""The engine's filters mean exactly what `matches` says, whatever stands in the metadata."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import Compare, Condition, Value, matches
from llama_retrieval_ext.stores.backend import Search
from llama_retrieval_ext.stores.embedded.backend import EmbeddedBackend
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.stores.odd_metadata import (
    BIG,
    CONFUSED,
    HARD_STRINGS,
    HUGE,
    NUMBERS,
    SIZED,
    STRINGS,
    OddMetadata,
    examples,
    matching,
)

ODD = OddMetadata(strings=[*STRINGS, *HARD_STRINGS], numbers=[*NUMBERS, *BIG, *HUGE], sizes=NUMBERS)


def found(store: EmbeddedVectorStore, condition: Condition) -> set[str]:
    search = EmbeddedBackend(store).dense([1.0, 0.0], Search(1000, condition))
    return {each.node_id for each in search.function()}


@pytest.fixture(scope="module")
def corpus() -> Iterator[tuple[EmbeddedVectorStore, list[TextNode]]]:
    nodes = ODD.nodes(300, seed=7)
    with EmbeddedVectorStore(":memory:") as store:
        store.add(nodes)
        yield store, nodes


@pytest.fixture(scope="module")
def changing() -> Iterator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as store:
        yield store


@examples(500)
@given(condition=ODD.conditions)
def test_the_engine_finds_what_matches_among_many(
    corpus: tuple[EmbeddedVectorStore, list[TextNode]], condition: Condition
) -> None:
    store, nodes = corpus
    assert found(store, condition) == matching(nodes, condition)


@examples(500)
@given(held=ODD.metadata, condition=ODD.conditions)
def test_the_engine_agrees_on_any_metadata(
    changing: EmbeddedVectorStore, held: dict[str, object], condition: Condition
) -> None:
    changing.add([TextNode(id_="n", embedding=[1.0, 0.0], metadata=held)])
    assert found(changing, condition) == ({"n"} if matches(condition, held) else set())


@pytest.mark.parametrize(("value", "operator", "asked"), CONFUSED)
def test_the_engine_agrees_on_what_is_easily_confused(
    changing: EmbeddedVectorStore, value: object, operator: FilterOperator, asked: Value
) -> None:
    changing.add([TextNode(id_="n", embedding=[1.0, 0.0], metadata={"k": value})])
    condition = Compare("k", operator, asked)
    assert found(changing, condition) == ({"n"} if matches(condition, {"k": value}) else set())


@pytest.mark.parametrize("operator", SIZED)
def test_sizes_beyond_exact_numbers_are_refused(
    store: EmbeddedVectorStore, operator: FilterOperator
) -> None:
    with pytest.raises(UnsupportedFilterError, match="2\\*\\*53") as caught:
        found(store, Compare("k", operator, 2**53))
    assert caught.value.operator == operator.name
