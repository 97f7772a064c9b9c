"""Odd metadata and odd conditions on it."""

import math
import random

from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not

KEYS = ["k", "tenant_id", "kb_id", "a.b", "a-b", "中文", "x/y:z@1+2-3", "id", "dense"]
STRINGS = [
    "", "a", "A", "ab", "3", "true", "None", "it's", 'say "x"', "back\\slash", "100%_*", "é", "É",
    "STRASSE", "straße", "İstanbul", "ΑΣ", "中文法律", "line\nbreak", "a\x00b", "lone\ud800", "+",
    "-", "sA", "n3", "\ue000", "\ue001\ue041", "_", "%", "a_b%c", "{x}", "\n",
]  # fmt: skip
NUMBERS = [
    0, -0.0, 1, 3, 3.0, 3.5, -7, 0.1, 1e-300, 2**53 - 1, 2**53, 2**53 + 1, float(2**53), -(2**53),
    2**63, 2**64 + 1, 10**30, 1e30, 1e300, -1e300,
]  # fmt: skip

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
    st.builds(Compare, keys, st.sampled_from(SIZED), numbers),
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


def random_value(rng: random.Random) -> object:
    scalar = [*STRINGS, *NUMBERS]
    kind = rng.randrange(10)
    if kind < 6:
        return rng.choice(scalar)
    if kind < 8:
        return [rng.choice([*scalar, None, True, math.nan]) for _ in range(rng.randrange(4))]
    return rng.choice([None, True, False, math.nan, math.inf, {}, {"k": "a"}, 10**400])


def random_nodes(count: int, *, seed: int, plain: bool = False) -> list[TextNode]:
    """Nodes with odd metadata.

    Args:
        count: How many.
        seed: Of the choice.
        plain: Without what LlamaIndex's integration cannot store.
    """
    rng = random.Random(seed)
    keys = [key for key in KEYS if key not in ("id", "dense")] if plain else KEYS
    return [
        TextNode(
            id_=f"n{number}",
            embedding=[1.0, number],
            metadata={
                key: value
                for key in keys
                if rng.random() < 0.6
                for value in [random_value(rng)]
                if not plain or is_plain(value)
            },
        )
        for number in range(count)
    ]


def is_plain(value: object) -> bool:
    """Whether it is in JSON, and fits into 64 bits."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, int | float):
        return math.isfinite(value) if isinstance(value, float) else abs(value) < 2**63
    return "\ud800" not in str(value) if isinstance(value, str) else True
