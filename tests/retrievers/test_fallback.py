"""The first retriever that finds enough answers; the others are not asked."""

import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError, TooFewLegsError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.fallback import FallbackRetriever
from llama_retrieval_ext.testing.fakes import FakeRetriever, FixedRetriever, HangingRetriever
from tests.searching import Searched


def finding(n: int, name: str) -> FixedRetriever:
    return FixedRetriever([(f"{name}{place}", 1 - place / 10) for place in range(n)], name=name)


def broken(name: str = "broken") -> FixedRetriever:
    return FixedRetriever(name=name, error=ConnectionError("down"))


def test_the_first_that_finds_enough_answers_and_no_other_is_asked(searched: Searched) -> None:
    first, then, last = finding(1, "a"), finding(2, "b"), finding(3, "c")
    result = searched(FallbackRetriever(first, then, last, enough=2), "query")
    assert node_ids(result.hits) == ["b0", "b1"]
    assert [len(each.calls) for each in (first, then, last)] == [1, 1, 0]
    assert result.degraded == ()
    assert result.trace is not None
    assert result.trace.notes["answered_by"] == "b"


def test_when_none_finds_enough_the_longest_and_earliest_answers(searched: Searched) -> None:
    result = searched(
        FallbackRetriever(finding(1, "a"), finding(2, "b"), finding(2, "c"), enough=9), "query"
    )
    assert node_ids(result.hits) == ["b0", "b1"]


def test_answers_are_never_mixed(searched: Searched) -> None:
    result = searched(FallbackRetriever(finding(1, "a"), finding(2, "b"), enough=2), "query")
    assert {hit.source for hit in result.hits} == {"b"}


def test_one_that_fails_found_nothing_and_the_answer_says_so(searched: Searched) -> None:
    result = searched(FallbackRetriever(broken(), finding(1, "a")), "query")
    assert node_ids(result.hits) == ["a0"]
    assert [part.where for part in result.degraded] == ["broken"]


def test_an_empty_answer_is_an_answer_even_when_the_last_fails(searched: Searched) -> None:
    result = searched(FallbackRetriever(finding(0, "a"), broken()), "query")
    assert result.hits == []
    assert [part.where for part in result.degraded] == ["broken"]


def test_when_all_fail_the_query_fails(searched: Searched) -> None:
    with pytest.raises(TooFewLegsError, match="down"):
        searched(FallbackRetriever(broken("one"), broken("two")), "query")


def test_one_that_hangs_costs_its_time_and_no_more(searched: Searched) -> None:
    hanging = HangingRetriever([("late", 1.0)])
    retriever = FallbackRetriever(Leg("hanging", hanging, timeout_s=0.05), finding(1, "a"))
    try:
        result = searched(retriever, "query")
    finally:
        hanging.release()
    assert node_ids(result.hits) == ["a0"]
    assert "0.05 s" in result.degraded[0].reason


def test_scope_and_filters_hold_on_every_path(searched: Searched) -> None:
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
            asked = Query("query", scope=Scope("acme"), filters=english)
            assert node_ids(searched(free, asked).hits) == ["acme-en"]


def test_f17_the_order_of_what_answers_is_kept(searched: Searched) -> None:
    distances = FakeRetriever([("best", 0.1), ("worst", 0.9), ("best", 0.1)])
    result = searched(FallbackRetriever(distances, finding(1, "a")), "query")
    assert node_ids(result.hits) == ["best", "worst"]


def test_hits_without_a_score_get_one(searched: Searched) -> None:
    unscored = FakeRetriever([("b", None), ("a", None)])
    result = searched(FallbackRetriever(unscored, finding(1, "a")), "query")
    assert node_ids(result.hits) == ["b", "a"]
    assert all(isinstance(hit.score, float) for hit in result.hits)
    assert [hit.score for hit in unscored.hits] == [None, None]


def test_top_k_cuts_the_answer(searched: Searched) -> None:
    retriever = FallbackRetriever(finding(5, "a"), finding(5, "b"), top_k=2)
    assert node_ids(searched(retriever, "query").hits) == ["a0", "a1"]
    assert len(searched(retriever, Query("query", top_k=4)).hits) == 4


def test_retries_of_a_leg_come_before_the_fallback(searched: Searched) -> None:
    flaky = broken()
    retriever = FallbackRetriever(Leg("flaky", flaky, retries=2, backoff_s=0.001), finding(1, "a"))
    assert node_ids(searched(retriever, "query").hits) == ["a0"]
    assert len(flaky.calls) == 3


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least two retrievers, got 1; write"):
        FallbackRetriever(finding(1, "a"))
    with pytest.raises(ConfigurationError, match="enough must be a whole number"):
        FallbackRetriever(finding(1, "a"), finding(1, "b"), enough=0)


def test_it_says_what_it_is_made_of() -> None:
    retriever = FallbackRetriever(finding(1, "a"), FakeRetriever(), enough=3)
    assert repr(retriever) == "FallbackRetriever(a, FakeRetriever(...), enough=3)"
    assert retriever.outline() == "FallbackRetriever(enough=3)\n├─ a\n└─ FakeRetriever"
