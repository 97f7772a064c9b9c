"""How rewrites, fan-outs and refinements run in a chain, and what they may return."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import RRF, Hit, Query, Retriever, Scope
from llama_retrieval_ext.errors import ConfigurationError, ExecutionError, ScoreError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.testing import FixedRetriever
from tests.cases import cases
from tests.pipeline.parts import Each, FanOutBy, RefineBy, RewriteBy, Say, good, raising, shouted
from tests.searching import Searched

SOURCE = FixedRetriever(
    [("a", 0.9, "travel"), ("b", 0.8, "annual leave"), ("c", 0.7, "sick leave")]
)
ENGLISH = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])


def scored(hits: Sequence[Hit], score: Callable[[Hit], float | None]) -> list[NodeWithScore]:
    return [NodeWithScore(node=hit.node, score=score(hit)) for hit in hits]


def test_new_scores_of_a_refinement_sort_the_hits(searched: Searched) -> None:
    by_length = RefineBy(lambda hits: scored(hits, lambda hit: len(hit.text)))
    assert node_ids(searched(SOURCE >> by_length, "leave").hits) == ["b", "c", "a"]


def test_hits_that_a_refinement_returns_without_scores_keep_theirs(searched: Searched) -> None:
    bare = RefineBy(lambda hits: scored(hits, lambda _: None))
    kept = searched(SOURCE >> bare, "leave").hits
    assert [(hit.node_id, hit.score, hit.source) for hit in kept] == [
        ("a", 0.9, "fixed"),
        ("b", 0.8, "fixed"),
        ("c", 0.7, "fixed"),
    ]


def test_a_hit_that_a_refinement_repeats_counts_at_its_first_place(searched: Searched) -> None:
    repeated = RefineBy(lambda hits: [*hits, hits[0]])
    assert node_ids(searched(SOURCE >> repeated, "q").hits) == [*"abc"]


@cases(
    ("change", "error", "message"),
    [
        (lambda _: None, ConfigurationError, r"RefineBy.refine must return .* got None; add a ret"),
        (lambda _: {"a": 1}, ConfigurationError, r"must return a list of hits"),
        (lambda _: ["a"], ConfigurationError, r"got 'a' as item 0"),
        (
            lambda _: [NodeWithScore(node=TextNode(id_="x"), score=1.0)],
            ExecutionError,
            r"returned node 'x', which was not in the ranking",
        ),
        (lambda hits: scored(hits, lambda _: math.nan), ScoreError, r"gave node 'a' the score nan"),
        (raising(LookupError("not allowed")), LookupError, "not allowed"),
    ],
)
def test_a_refinement_that_fails_or_returns_no_ranking_of_its_hits_is_an_error(
    searched: Searched,
    change: Callable[[Sequence[Hit]], object],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        searched(SOURCE >> RefineBy(change), "q")


def test_refinements_get_the_original_query(searched: Searched) -> None:
    leg, note = good(), RefineBy(list)
    searched(RewriteBy(shouted) >> leg >> note, "query")
    searched(RewriteBy(shouted) >> (leg | leg) >> RRF() >> note, "query")
    assert {call.query_str for call in leg.calls} == {"QUERY"}
    assert note.queries == ["query", "query"]


@cases("new", ["other", QueryBundle("other"), Query("other")])
def test_a_rewrite_returns_a_query_in_any_form_and_keeps_the_scope(
    searched: Searched, new: str | QueryBundle
) -> None:
    leg = FixedRetriever([("a", 1.0, "a", {"tenant_id": "acme"}), ("b", 0.9)])
    query = Query("query", embedding=[1.0], scope=Scope("acme"))
    assert node_ids(searched(RewriteBy(lambda _: new) >> leg, query).hits) == ["a"]
    (call,) = leg.calls
    assert (call.query_str, call.embedding, call.scope) == ("other", None, query.scope)


@cases("new", [None, 3, ["other"]])
def test_a_rewrite_that_returns_no_query_is_an_error(searched: Searched, new: object) -> None:
    with pytest.raises(ConfigurationError, match=r"RewriteBy.rewrite must return a string, a Qu"):
        searched(RewriteBy(lambda _: new) >> SOURCE, "query")


@cases(
    "make",
    [
        lambda source: Say() >> source,
        lambda source: Say() >> Say() >> source,
        lambda source: Each(("x", "y")) >> source >> RRF(),
    ],
)
def test_a_new_query_keeps_scope_filters_and_top_k(make: Callable[[Any], Retriever]) -> None:
    rows = [
        (f"{tenant}-{lang}", 0.5, "text", {"tenant_id": tenant, "lang": lang})
        for tenant, lang in (("acme", "en"), ("acme", "zh"), ("globex", "en"))
    ]
    retriever = make(FixedRetriever(rows))
    query = Query("query", scope=Scope("acme"), filters=ENGLISH)
    assert node_ids(retriever.retrieve(query)) == ["acme-en"]
    assert node_ids(retriever.for_scope(Scope("globex")).retrieve("query")) == ["globex-en"]
    many = make(FixedRetriever([(f"n{place}", 1.0) for place in range(30)], top_k=10))
    assert len(many.retrieve(Query("query", top_k=20))) == 20


@pytest.mark.parametrize(
    ("function", "reasons"),
    [(raising(ValueError("nonsense")), ["ValueError: nonsense"]), (lambda _: [], [])],
    ids=["fails", "none"],
)
def test_a_fan_out_without_queries_leaves_the_original_query(
    searched: Searched, function: Callable[[Query], object], reasons: list[str]
) -> None:
    leg = good()
    result = searched(FanOutBy(function) >> leg >> RRF(), "query")
    assert node_ids(result.hits) == ["a", "b"]
    assert [call.query_str for call in leg.calls] == ["query"]
    assert [part.reason for part in result.degraded] == reasons


@pytest.mark.parametrize("fused", [False, True])
def test_a_rewrite_that_fails_leaves_the_query_as_it_is(searched: Searched, fused: bool) -> None:
    leg = good()
    rewrites = RewriteBy(shouted) >> RewriteBy(raising(TimeoutError("late")))
    result = searched(rewrites >> ((leg | good("other")) >> RRF() if fused else leg), "query")
    assert result.hits
    assert [call.query_str for call in leg.calls] == ["QUERY"]
    assert [part.reason for part in result.degraded] == ["TimeoutError: late"]


def test_a_configuration_error_of_a_rewrite_is_raised(searched: Searched) -> None:
    with pytest.raises(ConfigurationError, match="no model"):
        searched(RewriteBy(raising(ConfigurationError("no model"))) >> good(), "query")
