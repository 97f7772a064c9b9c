"""Functions made from plans: what they show to readers and tools."""

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import get_type_hints

import pytest

from llama_retrieval_ext import Retriever, SearchResult
from llama_retrieval_ext.pipeline import Explanation


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("search", SearchResult),
        ("asearch", SearchResult),
        ("explain", Explanation),
        ("aexplain", Explanation),
        ("search_many", list[SearchResult]),
        ("asearch_many", list[SearchResult]),
        ("stream", Iterator[SearchResult]),
        ("astream", AsyncIterator[SearchResult]),
    ],
)
def test_methods_show_their_names_and_results_not_those_of_plans(name: str, result: object) -> None:
    method = getattr(Retriever, name)
    assert method.__name__ == name
    assert inspect.signature(method).return_annotation == result
    assert get_type_hints(method)["return"] == result
    assert inspect.iscoroutinefunction(method) is (name.startswith("a") and name != "astream")
