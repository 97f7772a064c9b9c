"""RuleRerank: rules without a model, their weights, and how words are matched."""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids, score_of
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.stages.rerank.rules import RuleRerank, RuleWeights, longest_run
from llama_retrieval_ext.testing.fakes import FakeRetriever, Row
from tests.cases import cases

NOTHING = {"previous_rank": 0.0, "terms": 0.0, "phrase": 0.0, "title": 0.0}


def only(**weights: float) -> RuleWeights:
    return RuleWeights(**{**NOTHING, **weights})


def reranked(stage: RuleRerank, query: str, *rows: Row) -> list[Hit]:
    pipeline = FakeRetriever(rows) >> stage
    hits = pipeline.search(query).hits
    assert asyncio.run(pipeline.asearch(query)).hits == hits
    return hits


def scores(stage: RuleRerank, query: str, *rows: Row) -> dict[str, float]:
    return {hit.node_id: score_of(hit) for hit in reranked(stage, query, *rows)}


@cases(
    ("weights", "query", "rows", "expected"),
    [
        (
            only(terms=1.0),
            "annual leave of employees",
            [
                ("all", 0.1, "Every employee has annual leaves."),
                ("one", 0.9, "Leave the room."),
                ("none", 0.9, "of the"),
                ("title", 0.9, "25 days", {"title": "Annual leave of employees"}),
            ],
            {"all": 1.0, "one": 1 / 3, "none": 0.0, "title": 1.0},
        ),
        (
            only(terms=1.0),
            "火",
            [("a", 0.1, "发生火灾时"), ("b", 0.1, "年假")],
            {"a": 1.0, "b": 0.0},
        ),
        (
            only(phrase=1.0),
            "carry over annual leave",
            [
                ("whole", 0.1, "You may carry over annual leave."),
                ("half", 0.1, "The annual leave is what you carry."),
                ("scattered", 0.1, "leave carry annual"),
            ],
            {"whole": 1.0, "half": 0.5, "scattered": 0.0},
        ),
        (only(phrase=1.0), "leave", [("one word", 0.1, "annual leave")], {"one word": 1.0}),
        (
            only(title=1.0),
            "how many days of sick leave",
            [
                ("named", 0.1, "", {"title": "Sick leave"}),
                ("half", 0.1, "", {"title": "Leave policy"}),
                ("untitled", 0.1, "", {"heading": "Sick leave"}),
            ],
            {"named": 1.0, "half": 0.5, "untitled": 0.0},
        ),
        # Without a `Recency` the rule of that name does not count.
    ],
)
def test_a_rule_scores_the_share_of_what_matches(
    weights: RuleWeights, query: str, rows: list[Row], expected: dict[str, float]
) -> None:
    assert scores(RuleRerank(weights), query, *rows) == pytest.approx(expected)


def test_the_key_of_titles_can_be_configured() -> None:
    rows: list[Row] = [("a", 0.1, "", {"heading": "Sick leave"})]
    assert scores(RuleRerank(only(title=1.0), title_key="heading"), "sick leave", *rows)["a"] == 1.0


def test_chinese_is_matched_by_pairs_of_characters() -> None:
    rows: list[Row] = [
        ("safety", 0.9, "施工单位应当为员工提供安全帽。"),
        ("leave", 0.1, "员工每年享有二十五天年假。", {"title": "年假"}),
    ]
    found = reranked(RuleRerank(), "员工年假", *rows)
    assert node_ids(found) == ["leave", "safety"]
    assert scores(RuleRerank(only(title=1.0)), "员工年假", *rows)["leave"] == 1.0
    assert scores(RuleRerank(only(phrase=1.0)), "二十五天", *rows) == {"leave": 1.0, "safety": 0.0}


def test_the_previous_rank_decides_between_hits_that_no_rule_separates() -> None:
    rows: list[Row] = [(id_, 0.5, "") for id_ in "dcba"]
    assert node_ids(reranked(RuleRerank(), "annual leave", *rows)) == list("dcba")
    eleventh = scores(
        RuleRerank(only(previous_rank=1.0)), "q", *[(f"n{n:02}", 0.5, "") for n in range(11)]
    )
    assert eleventh["n10"] == 0.5


def test_scores_of_rules_lie_between_0_and_1() -> None:
    rows: list[Row] = [("a", -300.0, "annual leave", {"title": "annual leave"}), ("b", 5000.0, "")]
    found = scores(RuleRerank(), "annual leave", *rows)
    assert all(0.0 <= score <= 1.0 for score in found.values())
    full = scores(RuleRerank(only(terms=0.1, phrase=0.2, title=0.7)), "annual leave", *rows)
    assert full["a"] == 1.0


def test_each_rule_is_a_contribution_and_the_shares_sum_to_the_score() -> None:
    rows: list[Row] = [("a", 0.9, "annual leave days", {"title": "Leave", "kind": "law"})]
    (hit,) = reranked(RuleRerank(), "annual leave", *rows)
    scores_by_rule = {part.leg: part.score for part in hit.contributions}
    assert scores_by_rule == {
        "FakeRetriever": 0.9,
        "previous rank": 1.0,
        "terms": 1.0,
        "phrase": 1.0,
        "title": 1.0,
    }
    assert math.fsum(part.share for part in hit.contributions) == pytest.approx(hit.score)


@pytest.mark.slow
def test_a_query_without_words_and_a_very_long_one_are_answered() -> None:
    rows: list[Row] = [("a", 0.9, "annual leave " * 200)]
    assert reranked(RuleRerank(), "?!", *rows)
    assert reranked(RuleRerank(), "annual leave days " * 3000, *rows)


@cases("weight", [-1.0, math.nan, math.inf])
def test_weights_are_finite_and_not_negative(weight: float) -> None:
    with pytest.raises(ConfigurationError, match="title must be a number of at least 0"):
        RuleWeights(title=weight)


def test_rule_weights_that_are_all_zero_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        RuleWeights(previous_rank=0, terms=0, phrase=0, title=0)


WORDS = st.lists(st.sampled_from("abc"), max_size=8)


@given(WORDS, WORDS)
def test_the_longest_run_is_the_longest_common_part(query: list[str], text: list[str]) -> None:
    parts = {
        tuple(query[start:end])
        for start in range(len(query))
        for end in range(start, len(query) + 1)
    }
    inside = [
        len(part)
        for part in parts
        if any(tuple(text[place : place + len(part)]) == part for place in range(len(text) + 1))
    ]
    assert longest_run(query, text) == max(inside, default=0)
