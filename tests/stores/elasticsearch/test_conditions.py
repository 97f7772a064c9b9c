"""The engine's filters mean exactly what `matches` says, whatever stands in the metadata."""

import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Value, matches
from llama_retrieval_ext.stores.backend import Search
from llama_retrieval_ext.stores.elasticsearch.backend import ElasticsearchBackend
from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore
from tests.stores.elasticsearch.asking import Opener, ids_by_condition

KEYS = ["k", "other", "a.b", "a b", "中文", "x/y:z@1+2-3", "list", "terms"]
ODD_KEYS = ['k"', '"k"sa', 'k"sa', "", "k\x00", "\ud800"]
STRINGS = [
    "", "a", "A", "ab", "3", "true", "None", "it's", 'say "x"', "back\\slash", "100%_*", "wh?t",
    "é", "É", "STRASSE", "straße", "İstanbul", "ΑΣ", "中文法律", "line\nbreak", "a\x00b",
    "lone\ud800", "+", "l", "sa", "n3", "isa", "a" * 256, "a" * 257, "b" * 5000 + "A" + "c" * 3000,
    "a~b", "\U0010ffff",
]  # fmt: skip
NUMBERS = [
    0, -0.0, 1, 3, 3.0, 3.5, -7, -7.25, 0.1, 1e-300, 5e-324, -5e-324, 2**53 - 1, 2**53, 2**53 + 1,
    float(2**53), -(2**53), 2**63, 2**64 + 1, 10**30, 1e30, 1e300, -1e300, 16, 17, 256, 257,
]  # fmt: skip
ODD = [None, True, False, math.nan, math.inf, -math.inf, 10**400, -(10**400)]

strings = st.one_of(st.sampled_from(STRINGS), st.text(max_size=4))
numbers = st.one_of(
    st.sampled_from(NUMBERS),
    st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**80), 2**80),
)
scalars = st.one_of(strings, numbers)
items = st.one_of(scalars, st.sampled_from(ODD), st.just(["a"]), st.just({"k": "a"}))
values = st.one_of(
    scalars,
    st.sampled_from(ODD),
    st.lists(items, max_size=4),
    st.dictionaries(st.sampled_from(KEYS), scalars, max_size=2),
)

metadata = st.dictionaries(st.sampled_from(KEYS + ODD_KEYS), values, max_size=4)

ONE = [FilterOperator.EQ, FilterOperator.NE, FilterOperator.CONTAINS]
MANY = [FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL]
SIZED = [FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE]
TEXTS = [FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE]

keys = st.sampled_from(KEYS)
compares = st.one_of(
    st.builds(Compare, keys, st.sampled_from(ONE), scalars),
    st.builds(Compare, keys, st.sampled_from(MANY), st.lists(scalars, max_size=3).map(tuple)),
    st.builds(Compare, keys, st.sampled_from(SIZED), numbers),
    st.builds(Compare, keys, st.sampled_from(TEXTS), strings.map(lambda text: text[:128])),
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
    return rng.choice([*ODD, {}, {"k": "a"}])


@pytest.fixture(scope="module")
def corpus(open_store: Opener) -> tuple[ElasticsearchVectorStore, list[TextNode]]:
    rng = random.Random(7)
    nodes = [
        TextNode(
            id_=f"n{number}",
            embedding=[1.0, number],
            metadata={key: random_value(rng) for key in KEYS if rng.random() < 0.6},
        )
        for number in range(300)
    ]
    store = open_store()
    store.add(nodes)
    return store, nodes


@pytest.fixture(scope="module")
def changing(open_store: Opener) -> ElasticsearchVectorStore:
    return open_store()


# 50 examples of 20: one request for many filters.
many = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
BATCH = 20


@many
@given(asked=st.lists(conditions, min_size=BATCH, max_size=BATCH))
def test_the_engine_finds_what_matches_among_many(
    corpus: tuple[ElasticsearchVectorStore, list[TextNode]], asked: list[Condition]
) -> None:
    store, nodes = corpus
    for condition, found in zip(asked, ids_by_condition(store, asked), strict=True):
        expected = {node.node_id for node in nodes if matches(condition, node.metadata)}
        assert found == expected, condition


@many
@given(cases=st.lists(st.tuples(metadata, conditions), min_size=BATCH, max_size=BATCH))
def test_the_engine_agrees_on_any_metadata(
    changing: ElasticsearchVectorStore, cases: list[tuple[dict[str, object], Condition]]
) -> None:
    nodes = [
        TextNode(id_=f"n{place}", embedding=[1.0, 0.0], metadata=held)
        for place, (held, _) in enumerate(cases)
    ]
    changing.add(nodes)
    answers = ids_by_condition(changing, [condition for _, condition in cases])
    for place, ((held, condition), found) in enumerate(zip(cases, answers, strict=True)):
        assert (f"n{place}" in found) is matches(condition, held), (held, condition)


EQ, IN, TEXT = FilterOperator.EQ, FilterOperator.IN, FilterOperator.TEXT_MATCH
ANY_CASE, CONTAINS = FilterOperator.TEXT_MATCH_INSENSITIVE, FilterOperator.CONTAINS
LONG = "x" * 1990 + "the middle of it" + "y" * 4000

CONFUSED: list[tuple[object, FilterOperator, Value]] = [
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
    ("3", EQ, 3),
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
    ("a*b", TEXT, "*"),
    ("ab", TEXT, "?"),
    ("a\\b", TEXT, "\\"),
    (LONG, TEXT, "the middle of it"),
    (LONG, ANY_CASE, "THE MIDDLE OF IT"),
    (LONG, EQ, LONG),
    (LONG, EQ, LONG + "y"),
    (LONG, TEXT, "y" * 128),
    ({}, FilterOperator.IS_EMPTY, None),
    ([], FilterOperator.IS_EMPTY, None),
    ([None], FilterOperator.IS_EMPTY, None),
    ("", FilterOperator.IS_EMPTY, None),
    ([], FilterOperator.ALL, ()),
    ("a", FilterOperator.ALL, ()),
    ([], FilterOperator.ANY, ()),
    ("a", IN, ()),
    (math.nan, FilterOperator.NE, 0),
    (math.inf, FilterOperator.GT, 2**53 + 1),
    (10**400, FilterOperator.GT, 0),
    (-(10**400), FilterOperator.LT, 0),
    (2**53 + 1, FilterOperator.GT, 2**53),
    (2**64 + 1, FilterOperator.LTE, 2**64),
]


def test_the_engine_agrees_on_what_is_easily_confused(changing: ElasticsearchVectorStore) -> None:
    changing.add(
        [
            TextNode(id_=f"c{place}", embedding=[1.0, 0.0], metadata={"k": value})
            for place, (value, _, _) in enumerate(CONFUSED)
        ]
    )
    asked = [Compare("k", operator, given) for _, operator, given in CONFUSED]
    answers = ids_by_condition(changing, asked)
    for place, (condition, found) in enumerate(zip(asked, answers, strict=True)):
        held = {"k": CONFUSED[place][0]}
        assert (f"c{place}" in found) is matches(condition, held), (held, condition)


def nested(depth: int) -> Condition:
    condition: Condition = Compare("k", EQ, "a")
    for level in range(depth):
        condition = (
            AllOf((condition, condition))
            if level < 1
            else Not(AllOf((condition, Compare("k", EQ, 1))))
        )
    return condition


@pytest.mark.parametrize(
    "condition",
    [
        Compare("k", TEXT, "x" * 129),
        Compare("k", IN, tuple(range(65_537))),
        AnyOf(tuple(Compare("k", EQ, number) for number in range(1001))),
        nested(20),
    ],
    ids=["a long text", "many values", "many comparisons", "deep"],
)
def test_what_servers_do_not_take_is_refused_before_anything_is_sent(
    store: ElasticsearchVectorStore, condition: Condition
) -> None:
    store.close()  # whatever is sent now fails otherwise
    with pytest.raises(UnsupportedFilterError, match="at most"):
        ElasticsearchBackend(store).dense([1.0, 0.0], Search(10, condition))


@pytest.mark.parametrize(
    "condition",
    [
        Compare("k", TEXT, "a" * 128),
        Compare("k", TEXT, "文" * 128),
        Compare("k", IN, tuple(range(65_536))),
        AnyOf(tuple(Compare("k", EQ, number) for number in range(1000))),
        nested(13),
    ],
    ids=["a long text", "a long Chinese text", "many values", "many comparisons", "deep"],
)
def test_what_is_not_refused_the_server_takes(
    corpus: tuple[ElasticsearchVectorStore, list[TextNode]], condition: Condition
) -> None:
    store, nodes = corpus
    found = ElasticsearchBackend(store).dense([1.0, 0.0], Search(1000, condition)).function()
    expected = {node.node_id for node in nodes if matches(condition, node.metadata)}
    assert {each.node_id for each in found} == expected
