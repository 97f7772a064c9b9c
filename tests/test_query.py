import copy
import math

import pytest
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError, InvalidFilterError, ScopeError
from llama_retrieval_ext.filters import AllOf, Compare, matches
from llama_retrieval_ext.query import Query, reworded
from llama_retrieval_ext.scope import Scope
from tests.cases import cases

ENGLISH = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])
RECENT = MetadataFilters(
    filters=[MetadataFilter(key="year", value=2020, operator=FilterOperator.GTE)]
)
IS_ENGLISH = Compare("lang", FilterOperator.EQ, "en")
IS_RECENT = Compare("year", FilterOperator.GTE, 2020)
IS_ACME = Compare("tenant_id", FilterOperator.EQ, "acme")


def test_a_query_is_a_query_bundle_of_llama_index() -> None:
    query = Query("annual leave", custom_embedding_strs=["leave"], embedding=[0.5])
    assert isinstance(query, QueryBundle)
    assert (str(query), query.embedding_strs, query.embedding) == ("annual leave", ["leave"], [0.5])


def test_text_and_bundles_become_queries_and_queries_stay_unchanged() -> None:
    query = Query("leave", top_k=3)
    assert Query.of(query) is query
    assert Query.of("leave") == Query("leave")
    bundle = QueryBundle("leave", "picture.png", ["annual"], [0.5])
    assert Query.of(bundle) == Query("leave", "picture.png", ["annual"], [0.5])


@cases(
    ("wrong", "message"),
    [
        ({"query_str": None}, "a query is a string"),
        ({"top_k": 0}, "top_k must be a whole number of at least 1, got 0"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_k": True}, "top_k"),
        ({"timeout_s": 0}, "timeout_s must be a positive number of seconds, got 0"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"timeout_s": math.nan}, "timeout_s"),
        ({"timeout_s": math.inf}, "for no limit leave it out"),
        ({"timeout_s": "5"}, "timeout_s must be a positive number of seconds, got '5'"),
        ({"timeout_s": True}, "timeout_s"),
        ({"scope": "acme"}, r"got 'acme'; write Scope\('acme'\)"),
        ({"filters": [MetadataFilter(key="lang", value="en")]}, "write MetadataFilters"),
        ({"context": ["a"]}, "context must be of type Mapping"),
    ],
)
def test_a_query_that_cannot_be_answered_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Query(**{"query_str": "leave", **wrong})  # type: ignore[arg-type]


def test_filters_are_checked_where_they_come_in() -> None:
    with pytest.raises(InvalidFilterError):
        Query("leave", filters=MetadataFilters(filters=[]))
    with pytest.raises(InvalidFilterError):
        Query("leave").but(filters=MetadataFilters(filters=[MetadataFilter(key="a", value=None)]))


def test_query_but_refuses_a_scope_or_context_of_another_type() -> None:
    with pytest.raises(ConfigurationError, match="context must be of type Mapping"):
        Query("leave").but(context=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="got 'acme'; write Scope"):
        Query("leave").but(scope="acme")  # type: ignore[arg-type]


def test_the_condition_is_the_scope_and_the_filters() -> None:
    assert Query("leave").condition is None
    assert Query("leave", filters=ENGLISH).condition == IS_ENGLISH
    assert Query("leave", scope=Scope("acme")).condition == IS_ACME
    whole = Query("leave", filters=ENGLISH, scope=Scope("acme"))
    assert whole.condition == AllOf((IS_ACME, IS_ENGLISH))


def test_query_but_replaces_numbers_and_joins_the_context() -> None:
    query = Query("leave", top_k=3, timeout_s=5, context={"a": 1, "b": 1})
    changed = query.but(top_k=7, context={"b": 2})
    assert (changed.top_k, changed.timeout_s, changed.context) == (7, 5, {"a": 1, "b": 2})
    assert query == Query("leave", top_k=3, timeout_s=5, context={"a": 1, "b": 1})


def test_query_but_narrows_filters_and_scope() -> None:
    query = Query("leave", filters=ENGLISH, scope=Scope("acme"))
    changed = query.but(filters=RECENT, scope=Scope("acme", ["a"]))
    assert changed.scope == Scope("acme", ["a"])
    fits = {"tenant_id": "acme", "kb_id": "a", "lang": "en", "year": 2024}
    assert matches(changed.condition, fits)
    for key in fits:
        assert not matches(changed.condition, {**fits, key: "other"})
    with pytest.raises(ScopeError):
        query.but(scope=Scope("globex"))


def test_query_but_without_arguments_is_an_equal_copy() -> None:
    query = Query("leave", "picture.png", ["annual"], [0.5], ENGLISH, Scope("acme"), 3, 5.0, {})
    assert query.but() == query
    assert query.but() is not query


def test_a_leg_gets_everything_but_the_number_of_hits_and_the_time() -> None:
    query = Query("leave", None, ["annual"], [0.5], ENGLISH, Scope("acme"), 3, 5.0, {"a": 1})
    before = copy.deepcopy(query)
    child = query.for_child(top_k=9)
    assert (child.top_k, child.timeout_s) == (9, None)
    assert query.for_child().top_k is None
    assert child.condition == query.condition
    assert (child.query_str, child.custom_embedding_strs, child.embedding, child.context) == (
        "leave",
        ["annual"],
        [0.5],
        {"a": 1},
    )
    assert query == before


@cases("text", ["", " ", "\n\t", "\u3000"])
def test_a_query_of_nothing_but_space_is_blank(text: str) -> None:
    assert Query(text).is_blank
    assert Query(text, custom_embedding_strs=[" "]).is_blank
    assert not Query(text, embedding=[0.5]).is_blank
    assert not Query(text, custom_embedding_strs=["leave"]).is_blank


def test_a_reworded_query_keeps_all_but_what_was_embedded() -> None:
    query = Query(
        "leave",
        custom_embedding_strs=["leave"],
        embedding=[1.0],
        scope=Scope("acme"),
        top_k=3,
        context={"user": "ann"},
    )
    other = reworded(query, "days off")
    assert (other.query_str, other.embedding_strs, other.embedding) == (
        "days off",
        ["days off"],
        None,
    )
    assert (other.scope, other.top_k, other.context) == (query.scope, 3, {"user": "ann"})
    assert (query.query_str, query.embedding) == ("leave", [1.0])
