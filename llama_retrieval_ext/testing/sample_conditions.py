"""Conditions on the sample documents: every operator, every kind of value, and their traps."""

from collections.abc import Mapping

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not

_EQ, _NE, _IN, _NIN = FilterOperator.EQ, FilterOperator.NE, FilterOperator.IN, FilterOperator.NIN
_GT, _GTE, _LT, _LTE = FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE
_ANY, _ALL, _CONTAINS = FilterOperator.ANY, FilterOperator.ALL, FilterOperator.CONTAINS
_TEXT, _FOLDED = FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE
_EMPTY = FilterOperator.IS_EMPTY

_ENGLISH = Compare("lang", _EQ, "en")
_OLD = Compare("year", _LT, 2021)
_LEAVE = Compare("tags", _CONTAINS, "leave")

SAMPLE_CONDITIONS: Mapping[str, Condition] = {
    "EQ a string": _ENGLISH,
    "EQ a Chinese string": Compare("title", _EQ, "年假"),
    "EQ a whole number": Compare("year", _EQ, 2020),
    "EQ a number with a fraction": Compare("score", _EQ, 0.6),
    "EQ zero": Compare("score", _EQ, 0),
    "EQ a whole number written with a fraction": Compare("year", _EQ, 2020.0),
    "EQ a number written as a string": Compare("year", _EQ, "2020"),
    "EQ part of a string": Compare("title", _EQ, "Leave"),
    "EQ on a list": Compare("tags", _EQ, "leave"),
    "EQ on a field that no node has": Compare("colour", _EQ, "red"),
    "EQ a string with quotes": Compare("title", _EQ, """O'Brien" or "1"=="1' -- \\"""),
    "NE": Compare("lang", _NE, "en"),
    "NE a number": Compare("year", _NE, 2020),
    "NE on a field that no node has": Compare("colour", _NE, "red"),
    "IN strings": Compare("title", _IN, ("Leave", "Lunch", "none")),
    "IN numbers": Compare("year", _IN, (2019, 2024)),
    "IN nothing": Compare("lang", _IN, ()),
    "NIN strings": Compare("title", _NIN, ("Leave", "Lunch")),
    "NIN numbers": Compare("year", _NIN, (2019, 2020)),
    "NIN nothing": Compare("lang", _NIN, ()),
    "GT": Compare("year", _GT, 2021),
    "GTE": Compare("year", _GTE, 2021),
    "LT": Compare("score", _LT, 0.4),
    "LTE": Compare("score", _LTE, 0.4),
    "GT a number with a fraction": Compare("year", _GT, 2020.5),
    "LT on strings": Compare("title", _LT, 2021),
    "ANY": Compare("tags", _ANY, ("food", "code", "none")),
    "ALL": Compare("tags", _ALL, ("hr", "leave")),
    "ALL on a string": Compare("lang", _ALL, ("en",)),
    "CONTAINS": _LEAVE,
    "CONTAINS part of an item": Compare("tags", _CONTAINS, "lea"),
    "CONTAINS on a string": Compare("title", _CONTAINS, "Leave"),
    "TEXT_MATCH": Compare("title", _TEXT, "leave"),
    "TEXT_MATCH within a word": Compare("title", _TEXT, "rave"),
    "TEXT_MATCH in Chinese": Compare("title", _TEXT, "年假"),
    "TEXT_MATCH with a wildcard": Compare("title", _TEXT, "%e_v*"),
    "TEXT_MATCH on a list": Compare("tags", _TEXT, "leave"),
    "TEXT_MATCH_INSENSITIVE": Compare("title", _FOLDED, "LEAVE"),
    "IS_EMPTY where it is missing": Compare("lang", _EMPTY, None),
    "IS_EMPTY where the list is empty": Compare("tags", _EMPTY, None),
    "both": AllOf((_ENGLISH, _OLD)),
    "either": AnyOf((_OLD, _LEAVE)),
    "not": Not(_ENGLISH),
    "not a number": Not(_OLD),
    "neither": Not(AnyOf((_OLD, _LEAVE))),
    "not both": Not(AllOf((_ENGLISH, _LEAVE))),
    "not not": Not(Not(_ENGLISH)),
    "either of two pairs": AnyOf((AllOf((_ENGLISH, _LEAVE)), AllOf((Not(_ENGLISH), _OLD)))),
    "both of two choices": AllOf((AnyOf((_OLD, _LEAVE)), AnyOf((Not(_ENGLISH), Not(_LEAVE))))),
    "everything": AllOf(()),
    "nothing": AnyOf(()),
}
