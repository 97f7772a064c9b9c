"""`RuleRerank`: declared rules, no model, and every point explained."""

import asyncio
import math

import pytest

from llama_retrieval_ext.results import Hit, node_ids, score_of
from llama_retrieval_ext.stages.decay import Recency
from llama_retrieval_ext.stages.rerank.rules import Boost, RuleRerank, RuleWeights
from llama_retrieval_ext.testing.fakes import FakeRetriever, Row
from llama_retrieval_ext.text.tokenizer import Tokenizer

NOTHING = {"place": 0.0, "terms": 0.0, "phrase": 0.0, "title": 0.0, "recency": 0.0}


def only(**weights: float) -> RuleWeights:
    return RuleWeights(**{**NOTHING, **weights})


def reranked(stage: RuleRerank, query: str, *rows: Row) -> list[Hit]:
    pipeline = FakeRetriever(rows) >> stage
    hits = pipeline.search(query).hits
    assert asyncio.run(pipeline.asearch(query)).hits == hits
    return hits


def scores(stage: RuleRerank, query: str, *rows: Row) -> dict[str, float]:
    return {hit.node_id: score_of(hit) for hit in reranked(stage, query, *rows)}


def test_terms_is_the_share_of_the_querys_words() -> None:
    found = scores(
        RuleRerank(only(terms=1.0)),
        "annual leave of employees",
        ("all", 0.1, "Every employee has annual leaves."),
        ("one", 0.9, "Leave the room."),
        ("none", 0.9, "of the"),
    )
    assert found == {"all": 1.0, "one": pytest.approx(1 / 3), "none": 0.0}


def test_terms_are_found_in_the_title_too() -> None:
    rows: list[Row] = [("a", 0.9, "25 days", {"title": "Annual leave"})]
    assert scores(RuleRerank(only(terms=1.0)), "annual leave", *rows) == {"a": 1.0}


def test_phrase_is_the_longest_part_that_stands_in_the_text() -> None:
    found = scores(
        RuleRerank(only(phrase=1.0)),
        "carry over annual leave",
        ("whole", 0.1, "You may carry over annual leave."),
        ("half", 0.1, "The annual leave is what you carry."),
        ("scattered", 0.1, "leave carry annual"),
    )
    assert found == {"whole": 1.0, "half": 0.5, "scattered": 0.0}


def test_a_query_of_one_word_is_a_phrase_of_one_word() -> None:
    rows: list[Row] = [("yes", 0.1, "annual leave"), ("no", 0.1, "travel")]
    assert scores(RuleRerank(only(phrase=1.0)), "leave", *rows) == {"yes": 1.0, "no": 0.0}


def test_title_is_the_share_of_the_titles_words() -> None:
    found = scores(
        RuleRerank(only(title=1.0), title_key="heading"),
        "how many days of sick leave",
        ("named", 0.1, "", {"heading": "Sick leave"}),
        ("half", 0.1, "", {"heading": "Leave policy"}),
        ("untitled", 0.1, "", {"title": "Sick leave"}),
    )
    assert found == {"named": 1.0, "half": 0.5, "untitled": 0.0}


def test_chinese_is_matched_by_pairs_of_characters() -> None:
    rows: list[Row] = [
        ("safety", 0.9, "施工单位应当为员工提供安全帽。"),
        ("leave", 0.1, "员工每年享有二十五天年假。", {"title": "年假"}),
    ]
    found = reranked(RuleRerank(), "员工年假", *rows)
    assert node_ids(found) == ["leave", "safety"]
    assert scores(RuleRerank(only(title=1.0)), "员工年假", *rows)["leave"] == 1.0
    assert scores(RuleRerank(only(phrase=1.0)), "二十五天", *rows) == {"leave": 1.0, "safety": 0.0}


def test_a_single_chinese_character_is_found_inside_words() -> None:
    rows: list[Row] = [("a", 0.1, "发生火灾时"), ("b", 0.1, "年假")]
    assert scores(RuleRerank(only(terms=1.0)), "火", *rows) == {"a": 1.0, "b": 0.0}


def test_recency_counts_where_it_is_told_how_to_read_the_age() -> None:
    rows: list[Row] = [("old", 0.9, "x", {"year": 2020}), ("new", 0.1, "x", {"year": 2026})]
    recency = Recency("year", half_life=3, origin=2026)
    found = scores(RuleRerank(only(recency=1.0), recency=recency), "q", *rows)
    assert found == {"new": 1.0, "old": 0.25}


def test_a_rule_that_cannot_be_asked_does_not_count() -> None:
    rows: list[Row] = [("a", 0.9, "annual leave")]
    weights = only(terms=1.0, recency=1.0)
    assert scores(RuleRerank(weights), "annual leave", *rows) == {"a": 1.0}


def test_boosts_count_beside_the_rules() -> None:
    rows: list[Row] = [
        ("memo", 0.9, "annual leave", {"kind": "memo"}),
        ("law", 0.1, "annual leave", {"kind": "law"}),
    ]
    stage = RuleRerank(only(terms=1.0), boosts=(Boost("kind", "law", 3.0),))
    assert scores(stage, "annual leave", *rows) == {"law": 1.0, "memo": 0.25}


def test_the_place_before_decides_where_nothing_else_does() -> None:
    rows: list[Row] = [(id_, 0.5, "") for id_ in "dcba"]
    assert node_ids(reranked(RuleRerank(), "annual leave", *rows)) == list("dcba")
    eleventh = scores(RuleRerank(only(place=1.0)), "q", *[(f"n{n:02}", 0.5, "") for n in range(11)])
    assert eleventh["n10"] == 0.5


def test_scores_lie_between_0_and_1_whatever_came_in() -> None:
    rows: list[Row] = [("a", -300.0, "annual leave", {"title": "annual leave"}), ("b", 5000.0, "")]
    found = scores(RuleRerank(boosts=(Boost("x", 1, 0.3),)), "annual leave", *rows)
    assert all(0.0 <= score <= 1.0 for score in found.values())
    full = scores(RuleRerank(only(terms=0.1, phrase=0.2, title=0.7)), "annual leave", *rows)
    assert full["a"] == 1.0


def test_every_rule_is_told_and_the_shares_sum_to_the_score() -> None:
    rows: list[Row] = [("a", 0.9, "annual leave days", {"title": "Leave", "kind": "law"})]
    (hit,) = reranked(RuleRerank(boosts=(Boost("kind", "law"),)), "annual leave", *rows)
    told = {part.leg: part.score for part in hit.contributions}
    assert told == {
        "FakeRetriever": 0.9,
        "place": 1.0,
        "terms": 1.0,
        "phrase": 1.0,
        "title": 1.0,
        "boost kind": 1.0,
    }
    assert math.fsum(part.share for part in hit.contributions) == pytest.approx(hit.score)


def test_a_query_without_words_and_a_very_long_one_are_answered() -> None:
    rows: list[Row] = [("a", 0.9, "annual leave " * 200)]
    assert reranked(RuleRerank(), "?!", *rows)
    assert reranked(RuleRerank(), "annual leave days " * 3000, *rows)


def test_hits_without_a_score_are_no_trouble() -> None:
    assert node_ids(reranked(RuleRerank(), "q", ("a", None), ("b", None))) == ["a", "b"]


def test_its_representation_is_its_expression() -> None:
    stage = RuleRerank(
        RuleWeights(title=2.0),
        recency=Recency("date", half_life=30.0, curve="linear"),
        boosts=(Boost("kind", ("law", "rule"), 0.5),),
        tokenizer=Tokenizer(language="german"),
    )
    assert eval(repr(stage)) == stage
    assert eval(repr(RuleRerank())) == RuleRerank()
