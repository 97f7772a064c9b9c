"""Conditions written as LlamaIndex filters mean what they meant."""

from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.errors import ConfigurationError, InvalidFilterError
from llama_retrieval_ext.filter_syntax import as_metadata_filters
from llama_retrieval_ext.filters import (
    AllOf,
    AnyOf,
    Compare,
    Condition,
    Not,
    Value,
    both,
    matches,
    parse_filters,
)
from llama_retrieval_ext.stores.generic import simplified
from llama_retrieval_ext.testing.corpus import SAMPLE_CONDITIONS, sample_nodes
from tests.cases import cases
from tests.quick import examples

OP = FilterOperator
ACME = Compare("tenant_id", OP.EQ, "acme")
OLD = Compare("year", OP.LT, 2020)


def one(key: str, value: Any, operator: FilterOperator = OP.EQ) -> MetadataFilter:
    return MetadataFilter(key=key, value=value, operator=operator)


def group(
    *filters: MetadataFilter | MetadataFilters, condition: FilterCondition | None = None
) -> MetadataFilters:
    if condition is None:
        return MetadataFilters(filters=list(filters))
    return MetadataFilters(filters=list(filters), condition=condition)


class Missing:
    """Stands for metadata without the field."""

    def __repr__(self) -> str:
        return "missing"


class Verb(str, Enum):  # noqa: UP042 - as users have them
    HAVE = "have"


MISSING = Missing()
FEBRUARY = datetime(2024, 2, 1, tzinfo=UTC)
# What each operator says of a field: operator, value, fields that match, fields that do not.
TABLE: list[tuple[FilterOperator, Value, list[object], list[object]]] = [
    (OP.EQ, "a", ["a"], ["A", "ab", "", ["a"], None, MISSING]),
    (OP.EQ, 3, [3, 3.0], ["3", 4, True, [3], None, MISSING]),
    (OP.EQ, 1, [1, 1.0, True], [False, "1", [True], MISSING]),
    (OP.EQ, 0, [0, 0.0, -0.0, False], [True, "", "0", [], None, MISSING]),
    (OP.EQ, "true", ["true", True], ["True", False, 1, ["true"], [True], MISSING]),
    (OP.EQ, "false", ["false", False], [True, 0, None, MISSING]),
    (OP.EQ, "True", ["True"], [True, "true"]),
    (OP.EQ, 2, [2], [True, False]),
    (OP.NE, "true", ["True", False, 1, [True], MISSING], ["true", True]),
    (OP.IN, ("true", 7), ["true", True, 7], [1, False, [True]]),
    (OP.NIN, (0, "x"), [True, 1, MISSING], [0, False, "x"]),
    (OP.GTE, 1, [1, 2], [True, False]),
    (OP.TEXT_MATCH, "true", ["true", "untrue"], [True]),
    (OP.ANY, (1, "true"), [[1], ["true"]], [[True], True]),
    (OP.ALL, (1,), [[1]], [[True]]),
    (OP.EQ, 0.5, [0.5], [0, 1, "0.5", MISSING]),
    (OP.NE, "a", ["A", "", 1, ["a"], None, MISSING], ["a"]),
    (OP.NE, 1, [2, "1", False, MISSING], [1, 1.0, True]),
    (OP.GT, 3, [4, 3.1], [3, 2, "4", [4], True, None, MISSING]),
    (OP.GTE, 3, [3, 3.0, 4], [2.9, "3", MISSING]),
    (OP.LT, 3, [2, -1.5, 0], [3, 3.5, "2", False, MISSING]),
    (OP.LTE, 3, [3, 3.0, 2], [3.1, "3", MISSING]),
    (
        OP.GT,
        "2024-01-31",
        ["2024-02-01", "2024-01-31T00:00:00.000000001", "2024-01-31T00:00-00:01", FEBRUARY],
        ["2024-01-31", "2024-01-31T00:30+00:30", "2024-01-31T00:30+01:00", "9999", 20250101, None],
    ),
    (
        OP.LTE,
        "2024-01-31T09:00+01:00",
        ["2024-01-31T08:00Z", "2024-01-31 08:00", "2024-01-31", "2023-12-31T23:59:59,9z"],
        ["2024-01-31T08:00:00.1", "2024-01-31T09:00", "2024-01-31T03:01-05", "2024-01-32", MISSING],
    ),
    (OP.IN, ("a", "b"), ["a", "b"], ["c", ["a"], "ab", None, MISSING]),
    (OP.IN, (1, 2), [1, 2.0, True], ["1", False, 3, MISSING]),
    (OP.IN, (), [], ["a", 1, None, MISSING]),
    (OP.NIN, ("a", "b"), ["c", "", 1, ["a"], MISSING], ["a", "b"]),
    (OP.NIN, (), ["a", MISSING], []),
    (OP.ANY, ("a", "b"), [["a"], ["c", "b"]], [["c"], [], "a", None, MISSING]),
    (OP.ANY, (), [], [["a"], [], MISSING]),
    (OP.ALL, ("a", "b"), [["a", "b"], ["b", "c", "a"]], [["a"], [], "a", None, MISSING]),
    (OP.ALL, (1,), [[1], [1.0, 2]], [["1"], [True], MISSING]),
    (OP.CONTAINS, "a", [["a"], ["b", "a"]], [["ab"], [], "a", "abc", None, MISSING]),
    (OP.CONTAINS, 1, [[1], [2, 1.0]], [["1"], [True], 1, MISSING]),
    (OP.TEXT_MATCH, "av", ["have", "av", Verb.HAVE], ["HAVE", "", ["av"], 5, None, MISSING]),
    (OP.TEXT_MATCH, "%", ["5 %"], ["abc", MISSING]),
    (OP.TEXT_MATCH_INSENSITIVE, "AV", ["have", "HAVE"], ["abc", ["av"], None, MISSING]),
    (OP.IS_EMPTY, None, [None, [], (), MISSING], ["", 0, False, [0], "a"]),
]


def test_an_operator_means_what_the_table_says(subtests: pytest.Subtests) -> None:
    for operator, value, yes, no in TABLE:
        with subtests.test(operator=operator):
            condition = Compare("field", operator, value)
            assert [field for field in yes if not satisfies(field, condition)] == []
            assert [field for field in no if satisfies(field, condition)] == []


def satisfies(field: object, condition: Condition) -> bool:
    return matches(condition, {} if field is MISSING else {"field": field})


def test_every_operator_of_llama_index_has_a_meaning() -> None:
    assert {operator for operator, *_ in TABLE} == set(FilterOperator)


def test_no_condition_is_always_satisfied() -> None:
    assert matches(None, {})
    assert matches(AllOf(()), {})
    assert not matches(AnyOf(()), {})


@cases(
    ("condition", "matched"),
    [
        (AllOf((ACME, OLD)), {"acme old"}),
        (AnyOf((ACME, OLD)), {"acme old", "acme new", "other old"}),
        (Not(ACME), {"other old", "nothing"}),
        (Not(AnyOf((ACME, OLD))), {"nothing"}),
        (AnyOf((AllOf((ACME, Not(OLD))), Not(ACME))), {"acme new", "other old", "nothing"}),
    ],
)
def test_groups_of_conditions_nest(condition: Condition, matched: set[str]) -> None:
    metadata: dict[str, dict[str, object]] = {
        "acme old": {"tenant_id": "acme", "year": 2000},
        "acme new": {"tenant_id": "acme", "year": 2024},
        "other old": {"tenant_id": "globex", "year": 2000},
        "nothing": {},
    }
    assert {name for name, fields in metadata.items() if matches(condition, fields)} == matched


@cases(
    ("filters", "condition"),
    [
        (group(one("year", 2024)), Compare("year", OP.EQ, 2024)),
        (group(one("a", ["x", "y"], OP.IN)), Compare("a", OP.IN, ("x", "y"))),
        (group(one("a", None, OP.IS_EMPTY)), Compare("a", OP.IS_EMPTY, None)),
        (
            group(one("a", "x"), one("b", 1)),
            AllOf((Compare("a", OP.EQ, "x"), Compare("b", OP.EQ, 1))),
        ),
        (
            group(one("a", "x"), one("b", 1), condition=FilterCondition.OR),
            AnyOf((Compare("a", OP.EQ, "x"), Compare("b", OP.EQ, 1))),
        ),
        (
            group(one("a", "x"), one("b", 1), condition=FilterCondition.NOT),
            Not(AnyOf((Compare("a", OP.EQ, "x"), Compare("b", OP.EQ, 1)))),
        ),
        (group(one("a", "x"), condition=FilterCondition.NOT), Not(Compare("a", OP.EQ, "x"))),
        (
            group(group(one("a", "x"), condition=FilterCondition.NOT), one("b", 1)),
            AllOf((Not(Compare("a", OP.EQ, "x")), Compare("b", OP.EQ, 1))),
        ),
        (group(group(group(one("a", "x")))), Compare("a", OP.EQ, "x")),
    ],
)
def test_filters_of_llama_index_become_a_condition(
    filters: MetadataFilters, condition: Condition
) -> None:
    assert parse_filters(filters) == condition


@cases(
    ("filters", "message"),
    [
        (group(), "filters=None"),
        (group(one("a", "x"), group()), "empty group"),
        (MetadataFilters(filters=[one("a", "x")], condition=None), "FilterCondition.AND, OR or"),
        (group(one("a", None)), "IS_EMPTY"),
        (group(one("a", None, OP.IN)), "IS_EMPTY"),
        (group(one("a", "x", OP.IS_EMPTY)), "takes no value, got 'x'"),
        (group(one("a", ["x"])), "EQ on 'a' takes a string or a finite number"),
        (group(one("a", "x", OP.IN)), "IN on 'a' takes a list"),
        (group(one("a", 1, OP.ANY)), "ANY on 'a' takes a list"),
        (group(one("a", "2020", OP.GT)), "or a date as '2024-01-31'"),
        (group(one("a", "2024-02-30", OP.LTE)), "or a date as '2024-01-31'"),
        (group(one("a", [1], OP.LTE)), "LTE on 'a' takes a finite number"),
        (group(one("a", float("nan"), OP.GT)), "finite number"),
        (group(one("a", float("inf"))), "finite number"),
        (group(one("a", 10**400)), "finite number"),
        (group(one("a", [float("nan")], OP.IN)), "finite numbers"),
        (group(one("a", [0] * 65_537, OP.ANY)), "at most 65,536 values, got 65,537"),
        (group(one("a", 1, OP.TEXT_MATCH)), "TEXT_MATCH on 'a' takes a string, got 1"),
        (group(one("a", ["x"], OP.CONTAINS)), "CONTAINS on 'a' takes a string or a finite number"),
    ],
)
def test_invalid_filters_are_refused_with_advice(filters: MetadataFilters, message: str) -> None:
    with pytest.raises(InvalidFilterError) as caught:
        parse_filters(filters)
    assert message in str(caught.value)
    assert isinstance(caught.value, ConfigurationError)


def test_invalid_filter_keys_are_refused(subtests: pytest.Subtests) -> None:
    wrong = [
        "",
        " ",
        "a ",
        " a",
        "a\n",
        "a'b",
        'a"b',
        "a`b",
        "a\\b",
        "a;b",
        "a[0]",
        "a{b",
        "a\x00b",
    ]
    for key in [*wrong, "$a", "a" * 129, "a=b", "a,b", "(a)", ".a", "a."]:
        with subtests.test(key=key), pytest.raises(InvalidFilterError, match="filter key"):
            parse_filters(group(one(key, "x")))


@cases(
    "key",
    [
        "a",
        "_a",
        "tenant_id",
        "file name",
        "dc:title",
        "a.b-c",
        "年份",
        "café",
        "a" * 128,
        "a/b@c+d",
    ],
)
def test_keys_of_letters_digits_and_a_few_separators_pass(key: str) -> None:
    assert parse_filters(group(one(key, "x"))) == Compare(key, OP.EQ, "x")


def test_both_is_the_one_that_is_there_or_the_two_together() -> None:
    assert both(None, None) is None
    assert both(ACME, None) == ACME
    assert both(None, OLD) == OLD
    assert both(ACME, OLD) == AllOf((ACME, OLD))


SCALARS = st.sampled_from(["a", "b", "ab", ""]) | st.integers(-3, 3) | st.sampled_from([0.5, 1.0])
LISTS = st.lists(SCALARS, max_size=3)
FIELDS = SCALARS | LISTS | st.none() | st.booleans()
METADATA = st.dictionaries(st.sampled_from(["x", "y"]), FIELDS)
LEAVES: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Compare, st.sampled_from("xy"), st.sampled_from([OP.EQ, OP.NE]), SCALARS),
    st.builds(Compare, st.sampled_from("xy"), st.just(OP.CONTAINS), SCALARS),
    st.builds(
        Compare,
        st.sampled_from("xy"),
        st.sampled_from([OP.IN, OP.NIN, OP.ANY, OP.ALL]),
        LISTS.map(tuple),
    ),
    st.builds(
        Compare,
        st.sampled_from("xy"),
        st.sampled_from([OP.GT, OP.GTE, OP.LT, OP.LTE]),
        st.integers(-3, 3),
    ),
    st.builds(Compare, st.sampled_from("xy"), st.just(OP.IS_EMPTY), st.none()),
)


def nested(leaves: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.builds(Not, parts),
            st.builds(AllOf, st.lists(parts, max_size=3).map(tuple)),
            st.builds(AnyOf, st.lists(parts, max_size=3).map(tuple)),
        ),
        max_leaves=6,
    )


CONDITIONS = nested(LEAVES)


@given(SCALARS, METADATA)
def test_a_comparison_with_one_value_equals_one_with_a_list_of_it(
    value: str | float, metadata: dict[str, Any]
) -> None:
    for single, several in ((OP.EQ, OP.IN), (OP.NE, OP.NIN), (OP.CONTAINS, OP.ANY)):
        alone = matches(Compare("x", single, value), metadata)
        assert matches(Compare("x", several, (value,)), metadata) is alone


MOMENTS = st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=-9))]))


@given(MOMENTS, MOMENTS, st.sampled_from("T "))
def test_dates_compare_as_python_compares_them(a: datetime, b: datetime, between: str) -> None:
    condition = Compare("x", OP.LT, b.isoformat(between))
    first, second = (each if each.tzinfo else each.replace(tzinfo=UTC) for each in (a, b))
    assert matches(condition, {"x": a.isoformat(between)}) is (first < second)


@cases("filters", [[one("a", 1)], one("a", 1), {"a": 1}, "a == 1"])
def test_filters_of_another_type_are_refused_with_advice(filters: Any) -> None:
    with pytest.raises(InvalidFilterError, match="write MetadataFilters"):
        parse_filters(filters)


SAMPLE_METADATA = [node.metadata for node in sample_nodes()]


def groups(filters: MetadataFilters) -> list[MetadataFilters]:
    inner = [part for part in filters.filters if isinstance(part, MetadataFilters)]
    return [filters, *(each for part in inner for each in groups(part))]


@examples(60)
@given(nested(st.sampled_from([ACME, OLD, Compare("tags", OP.ANY, ("hr", "food"))])))
def test_a_condition_survives_being_written_and_read(condition: Condition) -> None:
    simple = simplified(condition)
    if isinstance(simple, bool):
        assert {matches(condition, metadata) for metadata in SAMPLE_METADATA} == {simple}
        return
    filters = as_metadata_filters(simple)
    assert all(group.filters for group in groups(filters))
    read = parse_filters(filters)
    for metadata in SAMPLE_METADATA:
        assert matches(read, metadata) is matches(condition, metadata)


def test_every_operator_survives(subtests: pytest.Subtests) -> None:
    for condition in [
        each for name, each in SAMPLE_CONDITIONS.items() if name not in {"everything", "nothing"}
    ]:
        with subtests.test(condition=condition):
            read = parse_filters(as_metadata_filters(condition))
            assert [matches(read, metadata) for metadata in SAMPLE_METADATA] == [
                matches(condition, metadata) for metadata in SAMPLE_METADATA
            ]


def test_groups_are_flat_where_one_level_is_enough() -> None:
    filters = as_metadata_filters(AllOf((ACME, AllOf((OLD, AllOf((ACME,)))))))
    assert filters.condition is FilterCondition.AND
    assert [part.key for part in filters.filters if isinstance(part, MetadataFilter)] == [
        "tenant_id",
        "year",
        "tenant_id",
    ]
    assert len(groups(as_metadata_filters(ACME))) == 1


@cases("depth", [101, 900, 5_000])
def test_filters_that_are_nested_too_deep_are_refused(depth: int) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key="year", value=1)])
    for _ in range(depth - 1):
        group = MetadataFilters(filters=[], condition=FilterCondition.NOT)
        group.filters.append(filters)
        filters = group
    with pytest.raises(InvalidFilterError, match="at most 100 levels deep"):
        parse_filters(filters)


def test_more_than_a_thousand_conditions_are_refused() -> None:
    many = [MetadataFilter(key="year", value=number) for number in range(1_001)]
    with pytest.raises(InvalidFilterError, match="at most 1,000 conditions"):
        parse_filters(MetadataFilters(filters=[*many], condition=FilterCondition.OR))
    assert parse_filters(MetadataFilters(filters=[*many[1:]], condition=FilterCondition.OR))
