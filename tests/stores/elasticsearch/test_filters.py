"""The engine's filters mean exactly what `matches` says, whatever stands in the metadata."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Value
from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore
from llama_retrieval_ext.stores.engine.backend import Search
from tests.stores.elasticsearch.msearch import Opener, ids_by_condition
from tests.stores.filters_contract import FiltersContract
from tests.stores.odd_metadata import (
    ANY_CASE,
    BIG,
    CONFUSED,
    EQ,
    HARD_STRINGS,
    IN,
    NUMBERS,
    ODD_SCALARS,
    SMALL,
    STRINGS,
    TEXT,
    OddMetadata,
    matching,
)

pytestmark = pytest.mark.slow

KEYS = ["k", "other", "a.b", "a b", "中文", "x/y:z@1+2-3", "list", "terms"]
LONG_STRINGS = ["a" * 256, "a" * 257, "b" * 5000 + "A" + "c" * 3000]
ODD = OddMetadata(
    strings=[
        *STRINGS, *HARD_STRINGS, *LONG_STRINGS, "wh?t", "l", "sa", "isa", "a~b", "\U0010ffff",
    ],
    numbers=[*NUMBERS, *BIG, -7.25, 5e-324, -5e-324, 16, 17, 256, 257],
    keys=KEYS,
    odd_keys=['k"', '"k"sa', 'k"sa', "", "k\x00"],
    odd=ODD_SCALARS,
    more_numbers=st.one_of(
        SMALL,
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    longest_text=128,
)  # fmt: skip


NODES = ODD.nodes(300, seed=7)
LONG = "x" * 1990 + "the middle of it" + "y" * 4000

CASES: list[tuple[object, FilterOperator, Value]] = [
    *CONFUSED,
    ("3", EQ, 3),
    ("a*b", TEXT, "*"),
    ("ab", TEXT, "?"),
    ("a\\b", TEXT, "\\"),
    (LONG, TEXT, "the middle of it"),
    (LONG, ANY_CASE, "THE MIDDLE OF IT"),
    (LONG, EQ, LONG),
    (LONG, EQ, LONG + "y"),
    (LONG, TEXT, "y" * 128),
    (math.inf, FilterOperator.GT, 2**53),
    (2**53 + 2, FilterOperator.GT, 2**53),
]


@pytest.fixture(scope="module")
def corpus(open_store: Opener) -> ElasticsearchVectorStore:
    store = open_store()
    store.add(NODES)
    return store


@pytest.fixture(scope="module")
def changing(open_store: Opener) -> ElasticsearchVectorStore:
    return open_store()


class TestFilters(FiltersContract[ElasticsearchVectorStore]):
    odd, nodes, confused = ODD, NODES, CASES

    def found(
        self, store: ElasticsearchVectorStore, conditions: Sequence[Condition]
    ) -> list[set[str]]:
        return ids_by_condition(store, conditions)


def nested(depth: int) -> Condition:
    condition: Condition = Compare("k", EQ, "a")
    for level in range(depth):
        condition = (
            AllOf((condition, condition))
            if level < 1
            else Not(AllOf((condition, Compare("k", EQ, 1))))
        )
    return condition


# At the limits of servers, and beyond them.
LIMITS: dict[str, tuple[Condition, Condition]] = {
    "a long text": (Compare("k", TEXT, "文" * 128), Compare("k", TEXT, "x" * 129)),
    "many values": (
        Compare("k", IN, tuple(range(65_536))),
        Compare("k", FilterOperator.ALL, tuple(range(1001))),
    ),
    "many comparisons": (
        AnyOf(tuple(Compare("k", EQ, number) for number in range(1000))),
        AnyOf(tuple(Compare("k", EQ, number) for number in range(1001))),
    ),
    "deep": (nested(13), nested(20)),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_filter_beyond_the_limits_of_servers_is_refused_before_any_request(
    corpus: ElasticsearchVectorStore, name: str
) -> None:
    backend = corpus
    accepted, refused = LIMITS[name]
    with pytest.raises(UnsupportedFilterError, match="at most"):
        backend.dense([1.0, 0.0], Search(10, refused))
    found = {each.node_id for each in backend.dense([1.0, 0.0], Search(1000, accepted)).function()}
    some = NODES[:20]  # Python takes seconds for many values
    assert found & {node.node_id for node in some} == matching(some, accepted)
