"""The first retriever that finds enough answers; the others are not searched."""

import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import Query, Scope
from llama_retrieval_ext.errors import ConfigurationError, TooFewLegsError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import FallbackRetriever
from llama_retrieval_ext.testing import FakeRetriever, FixedRetriever
from tests.searching import Searched


def finding(n: int, name: str) -> FixedRetriever:
    return FixedRetriever([(f"{name}{place}", 1 - place / 10) for place in range(n)], name=name)


def broken(name: str = "broken") -> FixedRetriever:
    return FixedRetriever(name=name, error=ConnectionError("down"))


def test_the_first_with_enough_hits_answers_and_later_ones_are_not_searched(
    searched: Searched,
) -> None:
    first, then, last = finding(1, "a"), finding(2, "b"), finding(3, "c")
    result = searched(FallbackRetriever(first, then, last, enough=2), "query")
    assert node_ids(result.hits) == ["b0", "b1"]
    assert [len(each.calls) for each in (first, then, last)] == [1, 1, 0]
    assert result.degraded == ()
    assert result.trace is not None
    assert result.trace.notes["answered_by"] == "b"


def test_the_longest_answer_counts_if_none_has_enough_hits(searched: Searched) -> None:
    result = searched(
        FallbackRetriever(finding(1, "a"), finding(2, "b"), finding(2, "c"), enough=9), "query"
    )
    assert node_ids(result.hits) == ["b0", "b1"]


def test_a_failing_retriever_degrades_the_answer_of_the_next(searched: Searched) -> None:
    result = searched(FallbackRetriever(broken(), finding(1, "a")), "query")
    assert node_ids(result.hits) == ["a0"]
    assert [part.where for part in result.degraded] == ["broken"]


def test_an_empty_answer_counts_even_if_the_last_retriever_fails(searched: Searched) -> None:
    result = searched(FallbackRetriever(finding(0, "a"), broken()), "query")
    assert result.hits == []
    assert [part.where for part in result.degraded] == ["broken"]


def test_the_query_fails_if_all_retrievers_fail(searched: Searched) -> None:
    with pytest.raises(TooFewLegsError, match="down"):
        searched(FallbackRetriever(broken("one"), broken("two")), "query")


def test_scope_and_filters_hold_on_every_retriever_of_a_fallback(searched: Searched) -> None:
    rows = [
        (f"{tenant}-{lang}", 0.9, "text", {"tenant_id": tenant, "lang": lang})
        for tenant in ("acme", "globex")
        for lang in ("en", "zh")
    ]
    english = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])
    for first in (FixedRetriever([]), broken(), FakeRetriever([]), FakeRetriever(rows[2:])):
        for then in (FixedRetriever(rows), FakeRetriever(rows)):
            bound = FallbackRetriever(first, then, filters=english, scope=Scope("acme"))
            assert node_ids(searched(bound, "query").hits) == ["acme-en"]
            free = FallbackRetriever(first, then)
            query = Query("query", scope=Scope("acme"), filters=english)
            assert node_ids(searched(free, query).hits) == ["acme-en"]


def test_the_order_of_the_answering_retriever_is_kept(searched: Searched) -> None:
    distances = FakeRetriever([("best", 0.1), ("worst", 0.9), ("best", 0.1)])
    result = searched(FallbackRetriever(distances, finding(1, "a")), "query")
    assert node_ids(result.hits) == ["best", "worst"]


def test_a_single_retriever_and_enough_below_one_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least two retrievers, got 1; write"):
        FallbackRetriever(finding(1, "a"))
    with pytest.raises(ConfigurationError, match="enough must be a whole number"):
        FallbackRetriever(finding(1, "a"), finding(1, "b"), enough=0)
