"""Hits with other scores: in the order that was given, with their history."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode

from llama_retrieval_ext.reordering import in_order, reranked
from llama_retrieval_ext.results import Contribution, Hit, node_ids, ordered, score_of

SCORES = st.lists(st.sampled_from([-1.0, 0.0, 0.3, 0.5, 1.0]), min_size=1, max_size=8)


def hits(*ids: str) -> list[Hit]:
    return [
        Hit(node=TextNode(id_=id_), score=0.5 - place / 10, source="vector")
        for place, id_ in enumerate(ids)
    ]


@given(SCORES, st.randoms(use_true_random=False))
def test_the_order_of_a_reordering_is_the_order_by_score(
    scores: list[float], random: Random
) -> None:
    ids = [str(number) for number in range(len(scores))]
    random.shuffle(ids)
    found = reranked(hits(*ids), list(enumerate(scores)), by="x", ceiling=1.0)
    assert node_ids(found) == ids
    assert node_ids(ordered(found)) == ids
    assert all(score_of(hit) <= 1.0 for hit in found)


def test_scores_that_are_in_line_stay_as_they_are() -> None:
    found = reranked(hits("a", "b", "c"), [(2, 0.9), (0, 0.5), (1, 0.5)], by="x")
    assert [(hit.node_id, hit.score) for hit in found] == [("c", 0.9), ("a", 0.5), ("b", 0.5)]


def test_a_score_is_raised_to_those_behind() -> None:
    found = reranked(hits("b", "a"), [(0, 0.2), (1, 0.7)], by="x")
    assert [hit.score for hit in found] == [math.nextafter(0.7, 1.0), 0.7]


def test_a_ceiling_lowers_those_behind_instead() -> None:
    found = reranked(hits("b", "a"), [(0, 1.0), (1, 1.0)], by="x", ceiling=1.0)
    assert [hit.score for hit in found] == [1.0, math.nextafter(1.0, 0.0)]


def test_the_shares_sum_to_the_score_and_the_history_stays() -> None:
    legs = (Contribution("dense", 1, 0.8, 0.7, 0.01), Contribution("bm25", 3, 9.0, 0.3, 0.005))
    hit = Hit(node=TextNode(id_="a"), score=0.015, contributions=legs)
    (found,) = reranked([hit], [(0, 0.4)], by="x")
    assert [part.leg for part in found.contributions] == ["dense", "bm25", "x"]
    assert [part.score for part in found.contributions] == [0.8, 9.0, 0.4]
    assert sum(part.share for part in found.contributions) == found.score == 0.4


def test_nothing_that_came_in_is_changed() -> None:
    given_hits = hits("b", "a")
    reranked(given_hits, [(1, 0.9), (0, 0.1)], by="x")
    assert given_hits == hits("b", "a")


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
