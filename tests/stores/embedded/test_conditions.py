"""The engine's filters mean exactly what `matches` says, whatever stands in the metadata."""

import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Value, matches
from llama_retrieval_ext.stores.backend import Search
from llama_retrieval_ext.stores.embedded.backend import EmbeddedBackend
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore

KEYS = ["k", "other", "a.b", "a b", "中文", "x/y:z@1+2-3", "list", "meta"]
STRINGS = [
    "", "a", "A", "ab", "3", "true", "None", "it's", 'say "x"', "back\\slash", "100%_*", "é", "É",
    "STRASSE", "straße", "İstanbul", "ΑΣ", "中文法律", "line\nbreak", "a\x00b", "lone\ud800", "+",
    "-", "sA", "n3",
]  # fmt: skip
NUMBERS = [
    0, -0.0, 1, 3, 3.0, 3.5, -7, 0.1, 1e-300, 2**53 - 1, 2**53, 2**53 + 1, float(2**53), -(2**53),
    2**63, 2**64 + 1, 10**30, 1e30, 1e300, -1e300,
]  # fmt: skip
SMALL = [number for number in NUMBERS if abs(number) < 2**53]

strings = st.one_of(st.sampled_from(STRINGS), st.text(max_size=4))
numbers = st.one_of(st.sampled_from(NUMBERS), st.integers(-5, 5))
scalars = st.one_of(strings, numbers)
odd = st.sampled_from([None, True, False, math.nan, math.inf, -math.inf, 10**400])
items = st.one_of(scalars, odd, st.just(["a"]), st.just({"k": "a"}))
values = st.one_of(
    scalars,
    odd,
    st.lists(items, max_size=4),
    st.dictionaries(st.sampled_from(KEYS), scalars, max_size=2),
)
metadata = st.dictionaries(st.sampled_from(KEYS), values, max_size=4)

ONE = [FilterOperator.EQ, FilterOperator.NE, FilterOperator.CONTAINS]
MANY = [FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL]
SIZED = [FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE]
TEXTS = [FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE]

keys = st.sampled_from(KEYS)
compares = st.one_of(
    st.builds(Compare, keys, st.sampled_from(ONE), scalars),
    st.builds(Compare, keys, st.sampled_from(MANY), st.lists(scalars, max_size=3).map(tuple)),
    st.builds(Compare, keys, st.sampled_from(SIZED), st.sampled_from(SMALL)),
    st.builds(Compare, keys, st.sampled_from(TEXTS), strings),
    st.builds(Compare, keys, st.just(FilterOperator.IS_EMPTY), st.none()),
)
conditions: st.SearchStrategy[Condition] = st.recursive(
    compares,
    lambda parts: st.one_of(
        st.builds(AllOf, st.lists(parts, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(parts, max_size=3).map(tuple)),
        st.builds(Not, parts),
    ),
    max_leaves=5,
)


def found(store: EmbeddedVectorStore, condition: Condition) -> set[str]:
    search = EmbeddedBackend(store).dense([1.0, 0.0], Search(1000, condition))
    return {each.node_id for each in search.function()}


def random_value(rng: random.Random) -> object:
    scalar = [*STRINGS, *NUMBERS]
    kind = rng.randrange(10)
    if kind < 6:
        return rng.choice(scalar)
    if kind < 8:
        return [rng.choice([*scalar, None, True, math.nan]) for _ in range(rng.randrange(4))]
    return rng.choice([None, True, False, math.nan, math.inf, {}, {"k": "a"}, 10**400])


@pytest.fixture(scope="module")
def corpus() -> Iterator[tuple[EmbeddedVectorStore, list[TextNode]]]:
    rng = random.Random(7)
    nodes = [
        TextNode(
            id_=f"n{number}",
            embedding=[1.0, number],
            metadata={key: random_value(rng) for key in KEYS if rng.random() < 0.6},
        )
        for number in range(300)
    ]
    with EmbeddedVectorStore(":memory:") as store:
        store.add(nodes)
        yield store, nodes


@pytest.fixture(scope="module")
def changing() -> Iterator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as store:
        yield store


many = settings(
    max_examples=500,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@many
@given(condition=conditions)
def test_the_engine_finds_what_matches_among_many(
    corpus: tuple[EmbeddedVectorStore, list[TextNode]], condition: Condition
) -> None:
    store, nodes = corpus
    expected = {node.node_id for node in nodes if matches(condition, node.metadata)}
    assert found(store, condition) == expected


@many
@given(held=metadata, condition=conditions)
def test_the_engine_agrees_on_any_metadata(
    changing: EmbeddedVectorStore, held: dict[str, object], condition: Condition
) -> None:
    changing.add([TextNode(id_="n", embedding=[1.0, 0.0], metadata=held)])
    assert found(changing, condition) == ({"n"} if matches(condition, held) else set())


EQ, IN, TEXT = FilterOperator.EQ, FilterOperator.IN, FilterOperator.TEXT_MATCH
ANY_CASE, CONTAINS = FilterOperator.TEXT_MATCH_INSENSITIVE, FilterOperator.CONTAINS


@pytest.mark.parametrize(
    ("value", "operator", "asked"),
    [
        ([True], CONTAINS, 1),
        (["1"], CONTAINS, 1),
        ([1], CONTAINS, "1"),
        ([3], CONTAINS, 3.0),
        ([2**64 + 1], CONTAINS, 2**64),
        ([["a"]], CONTAINS, "a"),
        (["a"], EQ, "a"),
        (["a"], IN, ("a",)),
        (True, EQ, 1),
        (3, EQ, 3.0),
        (2**53 + 1, EQ, float(2**53)),
        (float(2**60), EQ, 2**60),
        ("lone\ud800", EQ, "lone?"),
        ("lone\ud800", EQ, "lone\ud801"),
        ("lone\ud800", TEXT, "e\ud800"),
        ("STRASSE", ANY_CASE, "straSSe"),
        ("ΑΣΑ", ANY_CASE, "ας"),
        ("ΑΣΑ", ANY_CASE, "ΑΣ"),
        ("", TEXT, ""),
        (3, TEXT, "3"),
        ({}, FilterOperator.IS_EMPTY, None),
        ([], FilterOperator.IS_EMPTY, None),
        ([None], FilterOperator.IS_EMPTY, None),
        ("", FilterOperator.IS_EMPTY, None),
        ([], FilterOperator.ALL, ()),
        ("a", FilterOperator.ALL, ()),
        ([], FilterOperator.ANY, ()),
        ("a", IN, ()),
        (math.nan, FilterOperator.NE, 0),
        (math.inf, FilterOperator.GT, 2**53 - 1),
        (10**400, FilterOperator.GT, 0),
        (-(10**400), FilterOperator.LT, 0),
    ],
)
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
