"""Hits with other scores: in a new order, with their contributions."""

import math
from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.hits import node_ids, ordered, score_of
from llama_retrieval_ext.reordering import ScoreKind, calibrated, in_order, reranked
from llama_retrieval_ext.results import Contribution, Hit
from tests.cases import cases

SCORES = st.lists(st.sampled_from([-1.0, 0.0, 0.3, 0.5, 1.0]), min_size=1, max_size=8)


def hits(*ids: str) -> list[Hit]:
    return [
        Hit(node=TextNode(id_=id_), score=0.5 - place / 10, source="vector")
        for place, id_ in enumerate(ids)
    ]


@given(SCORES, st.randoms(use_true_random=False))
def test_reranked_scores_fall_in_the_new_order(scores: list[float], random: Random) -> None:
    ids = [str(number) for number in range(len(scores))]
    random.shuffle(ids)
    found = reranked(hits(*ids), list(enumerate(scores)), by="x", ceiling=1.0)
    assert node_ids(found) == ids
    assert node_ids(ordered(found)) == ids
    assert all(score_of(hit) <= 1.0 for hit in found)


def test_scores_that_fall_keep_their_values_when_reranked() -> None:
    found = reranked(hits("a", "b", "c"), [(2, 0.9), (0, 0.5), (1, 0.5)], by="x")
    assert [(hit.node_id, hit.score) for hit in found] == [("c", 0.9), ("a", 0.5), ("b", 0.5)]


def test_a_reranked_score_is_raised_above_the_next_hit() -> None:
    found = reranked(hits("b", "a"), [(0, 0.2), (1, 0.7)], by="x")
    assert [hit.score for hit in found] == [math.nextafter(0.7, 1.0), 0.7]


def test_scores_at_the_ceiling_are_lowered_hit_by_hit() -> None:
    found = reranked(hits("b", "a"), [(0, 1.0), (1, 1.0)], by="x", ceiling=1.0)
    assert [hit.score for hit in found] == [1.0, math.nextafter(1.0, 0.0)]


def test_the_shares_sum_to_the_score_and_the_history_stays() -> None:
    legs = (Contribution("dense", 1, 0.8, 0.7, 0.01), Contribution("bm25", 3, 9.0, 0.3, 0.005))
    hit = Hit(node=TextNode(id_="a"), score=0.015, contributions=legs)
    (found,) = reranked([hit], [(0, 0.4)], by="x")
    assert [part.leg for part in found.contributions] == ["dense", "bm25", "x"]
    assert [part.score for part in found.contributions] == [0.8, 9.0, 0.4]
    assert sum(part.share for part in found.contributions) == found.score == 0.4


def test_reranking_changes_no_input_hit() -> None:
    original = hits("b", "a")
    reranked(original, [(1, 0.9), (0, 0.1)], by="x")
    assert original == hits("b", "a")


def test_in_order_keeps_the_first_of_a_repeated_id_and_raises_the_rest() -> None:
    b, a = hits("b", "a")
    worse = Hit(node=a.node, score=0.9)
    found = in_order([a, b, worse])
    assert [(hit.node_id, hit.score) for hit in found] == [("a", 0.5), ("b", 0.5)]
    raised = in_order([*reranked([b, a], [(0, 0.2)], by="x"), a])
    assert score_of(raised[0]) > 0.2
    assert sum(part.share for part in raised[0].contributions) == pytest.approx(raised[0].score)


def test_in_order_gives_a_hit_without_a_score_the_lowest() -> None:
    b, a = hits("b", "a")
    none = Hit(node=a.node, score=None)
    assert [hit.score for hit in in_order([b, none])] == [math.nextafter(0.5, 1.0), 0.5]
    assert in_order([none])[0].score == 0.0


def test_a_logit_becomes_the_probability_it_stands_for() -> None:
    assert calibrated(0.0, "logit") == 0.5
    assert calibrated(2.0, "logit") == pytest.approx(1 / (1 + math.exp(-2.0)))
    assert calibrated(-2.0, "logit") == pytest.approx(1 / (1 + math.exp(2.0)))


@cases("logit", [1e308, -1e308])
def test_extreme_logits_do_not_overflow(logit: float) -> None:
    assert calibrated(logit, "logit") in {0.0, 1.0}


def test_rounding_is_forgiven_to_probabilities_and_nothing_else_is() -> None:
    assert calibrated(1.0000001, "probability") == 1.0
    assert calibrated(-1e-9, "probability") == 0.0
    with pytest.raises(ScoreError, match="logit"):
        calibrated(3.2, "probability")


@cases("kind", get_args(ScoreKind))
@cases("score", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_refused(kind: ScoreKind, score: float) -> None:
    with pytest.raises(ScoreError, match="finite"):
        calibrated(score, kind)
