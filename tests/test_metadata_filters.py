"""Conditions written as LlamaIndex filters mean what they meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.filters import (
    AllOf,
    AnyOf,
    Compare,
    Condition,
    Not,
    as_metadata_filters,
    matches,
    parse_filters,
    simplified,
)
from llama_retrieval_ext.testing.corpus import SAMPLE_CONDITIONS, sample_nodes
from tests.quick import examples

METADATA = [node.metadata for node in sample_nodes()]
A = Compare("lang", FilterOperator.EQ, "en")
B = Compare("year", FilterOperator.GT, 2020)
C = Compare("tags", FilterOperator.ANY, ("hr", "food"))

conditions = st.recursive(
    st.sampled_from([A, B, C]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: AllOf(tuple(parts))),
        st.lists(inner, max_size=3).map(lambda parts: AnyOf(tuple(parts))),
        inner.map(Not),
    ),
    max_leaves=6,
)


def groups(filters: MetadataFilters) -> list[MetadataFilters]:
    inner = [part for part in filters.filters if isinstance(part, MetadataFilters)]
    return [filters, *(each for part in inner for each in groups(part))]


@examples(60)
@given(conditions)
def test_a_condition_survives_being_written_and_read(condition: Condition) -> None:
    simple = simplified(condition)
    if isinstance(simple, bool):
        assert {matches(condition, metadata) for metadata in METADATA} == {simple}
        return
    filters = as_metadata_filters(simple)
    assert all(group.filters for group in groups(filters))
    read = parse_filters(filters)
    for metadata in METADATA:
        assert matches(read, metadata) is matches(condition, metadata)


@pytest.mark.parametrize(
    "condition",
    [each for name, each in SAMPLE_CONDITIONS.items() if name not in {"everything", "nothing"}],
    ids=repr,
)
def test_every_operator_survives(condition: Condition) -> None:
    read = parse_filters(as_metadata_filters(condition))
    assert [matches(read, metadata) for metadata in METADATA] == [
        matches(condition, metadata) for metadata in METADATA
    ]


def test_groups_are_flat_where_one_level_is_enough() -> None:
    filters = as_metadata_filters(AllOf((A, AllOf((B, AllOf((C,)))))))
    assert filters.condition is FilterCondition.AND
    assert [part.key for part in filters.filters if isinstance(part, MetadataFilter)] == [
        "lang",
        "year",
        "tags",
    ]
    assert len(groups(as_metadata_filters(A))) == 1
