"""Milvus's expressions mean exactly what `matches` says, whatever stands in the metadata."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Value, matches
from llama_retrieval_ext.stores.backend import Search
from llama_retrieval_ext.stores.milvus.backend import MilvusBackend
from llama_retrieval_ext.stores.milvus.opening import open_milvus
from llama_retrieval_ext.stores.milvus.store import MilvusStore
from tests.servers.given import collection_url
from tests.servers.milvus import URL_VARIABLE
from tests.stores.milvus.hard_metadata import ODD
from tests.stores.odd_metadata import CONFUSED, EQ, IN, examples, matching


def found(store: MilvusStore, condition: Condition) -> set[str]:
    search = MilvusBackend(store).dense([1.0, 0.0], Search(1000, condition))
    return {each.node_id for each in search.function()}


# Milvus Lite reads expressions alike in a file and as a server; a user's own server does not.
PLACES = ["file", "server"] if URL_VARIABLE in os.environ else ["file"]


@contextmanager
def opened_at(place: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[MilvusStore]:
    url = f"milvus:{folder}/kb.db"
    if place == "server":
        url = collection_url(request.getfixturevalue("milvus_url"), f"t{uuid.uuid4().hex}")
    with open_milvus(url) as store:
        yield store
        store.clear()


@pytest.fixture(scope="module", params=PLACES)
def corpus(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[MilvusStore, list[TextNode]]]:
    nodes = ODD.nodes(300, seed=7)
    with opened_at(request.param, request, tmp_path_factory.mktemp("lite")) as store:
        store.add(nodes)
        yield store, nodes


@pytest.fixture(scope="module", params=PLACES)
def changing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MilvusStore]:
    with opened_at(request.param, request, tmp_path_factory.mktemp("lite")) as store:
        yield store


@examples(500)
@given(condition=ODD.conditions)
def test_the_engine_finds_what_matches_among_many(
    corpus: tuple[MilvusStore, list[TextNode]], condition: Condition
) -> None:
    store, nodes = corpus
    assert found(store, condition) == matching(nodes, condition)


@examples(500)
@given(held=ODD.metadata, condition=ODD.conditions)
def test_the_engine_agrees_on_any_metadata(
    changing: MilvusStore, held: dict[str, object], condition: Condition
) -> None:
    changing.add([TextNode(id_="n", embedding=[1.0, 0.0], metadata=held)])
    assert found(changing, condition) == ({"n"} if matches(condition, held) else set())


@pytest.mark.parametrize(("value", "operator", "asked"), CONFUSED)
def test_the_engine_agrees_on_what_is_easily_confused(
    changing: MilvusStore, value: object, operator: FilterOperator, asked: Value
) -> None:
    changing.add([TextNode(id_="n", embedding=[1.0, 0.0], metadata={"k": value})])
    condition = Compare("k", operator, asked)
    assert found(changing, condition) == ({"n"} if matches(condition, {"k": value}) else set())


def test_filters_nested_too_deeply_are_refused_before_anything_is_sent(
    store: MilvusStore,
) -> None:
    condition: Condition = Compare("k", EQ, "a")
    for _ in range(20):
        condition = Not(AllOf((condition, Compare("k", EQ, "b"))))
    with pytest.raises(UnsupportedFilterError, match="nested"):
        MilvusBackend(store).dense([1.0], Search(1, condition))


def test_a_filter_as_deep_as_allowed_is_answered(
    corpus: tuple[MilvusStore, list[TextNode]],
) -> None:
    store, nodes = corpus
    condition: Condition = Compare("k", EQ, "a")
    for number in range(14):
        condition = Not(AnyOf((condition, Compare("k", EQ, number))))
    assert found(store, condition) == matching(nodes, condition)


def test_many_values_are_answered(corpus: tuple[MilvusStore, list[TextNode]]) -> None:
    store, nodes = corpus
    condition = Compare("k", IN, (*map(str, range(5000)), "a", 3))
    assert found(store, condition) == matching(nodes, condition)


@pytest.mark.parametrize("group", [AnyOf, AllOf])
def test_many_parts_are_answered(
    corpus: tuple[MilvusStore, list[TextNode]], group: type[AnyOf | AllOf]
) -> None:
    store, nodes = corpus
    values = [*map(str, range(1000)), "a"]
    same = Compare("k", EQ if group is AnyOf else FilterOperator.NE, "a")
    condition = group((same, *(Compare("other", same.operator, value) for value in values)))
    assert found(store, condition) == matching(nodes, condition)
