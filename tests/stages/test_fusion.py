"""RRF, WeightedSum and Max against values worked out by hand, and what they have in common."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest
from llama_index.core.schema import NodeWithScore, TextNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.results import Contribution, Hit
from llama_retrieval_ext.stages.fusion import RRF, Max, WeightedSum
from llama_retrieval_ext.testing.fakes import FakeRetriever
from tests.cases import cases

Rankings = Mapping[str, Sequence[NodeWithScore]]


def ranking(*rows: tuple[str, float | None]) -> list[NodeWithScore]:
    return FakeRetriever(rows).hits


def scores(hits: Sequence[Hit]) -> dict[str, float | None]:
    return {hit.node.node_id: hit.score for hit in hits}


# By cosine and by BM25, say.
X = ranking(("a", 0.9), ("b", 0.5), ("c", 0.1))
Y = ranking(("c", 8.0), ("a", 4.0))
LEGS: Rankings = {"x": X, "y": Y}
WEIGHTS = {"x": 3.0, "y": 1.0}
# The share of x and of y within three standard deviations: 0.4 around 0.5, and sqrt(8) around 6.
DEV_X, DEV_Y = 0.4 / (6 * 0.4), 2 / (6 * math.sqrt(8))

EXPECTED: Mapping[str, tuple[Fusion, dict[str, float]]] = {
    "RRF": (RRF(), {"a": 1 / 61 + 1 / 62, "c": 1 / 63 + 1 / 61, "b": 1 / 62}),
    "RRF, k": (RRF(k=1), {"a": 1 / 2 + 1 / 3, "c": 1 / 4 + 1 / 2, "b": 1 / 3}),
    "RRF, weights": (
        RRF(weights=WEIGHTS),
        {"a": 3 / 61 + 1 / 62, "c": 3 / 63 + 1 / 61, "b": 3 / 62},
    ),
    "WeightedSum": (WeightedSum(), {"a": 0.5, "c": 0.5, "b": 0.25}),
    "WeightedSum, weights": (WeightedSum(WEIGHTS), {"a": 0.75, "b": 0.375, "c": 0.25}),
    "WeightedSum, z-score": (
        WeightedSum(WEIGHTS, normalise=Normalisation.Z_SCORE),
        {"a": 0.75 * math.sqrt(1.5) - 0.25, "b": 0.0, "c": -0.75 * math.sqrt(1.5) + 0.25},
    ),
    "WeightedSum, raw": (
        WeightedSum(WEIGHTS, normalise=Normalisation.NONE),
        {"c": 0.75 * 0.1 + 0.25 * 8, "a": 0.75 * 0.9 + 0.25 * 4, "b": 0.75 * 0.5},
    ),
    "WeightedSum, distribution": (
        WeightedSum(normalise=Normalisation.DISTRIBUTION_BASED),
        {
            "a": (0.5 + DEV_X) / 2 + (0.5 - DEV_Y) / 2,
            "c": (0.5 - DEV_X) / 2 + (0.5 + DEV_Y) / 2,
            "b": 0.5 / 2,
        },
    ),
    "Max": (Max(), {"c": 8.0, "a": 4.0, "b": 0.5}),
    "Max, weights": (Max({"x": 10, "y": 1}), {"a": 9.0, "c": 8.0, "b": 5.0}),
}
FUSIONS = [fusion for fusion, _ in EXPECTED.values()]
ADDITIVE = [fusion for fusion in FUSIONS if isinstance(fusion, RRF | WeightedSum)]
# One maker of every class, with weights.
WEIGHTED: Sequence[Callable[..., Fusion]] = (
    lambda weights: RRF(weights=weights),
    WeightedSum,
    partial(WeightedSum, normalise=Normalisation.DISTRIBUTION_BASED),
    Max,
)
NAMES = ["RRF", "WeightedSum", "WeightedSum, distribution", "Max"]


@cases(("fusion", "expected"), EXPECTED.values())
def test_a_fusion_gives_the_scores_worked_out_by_hand(
    fusion: Fusion, expected: dict[str, float]
) -> None:
    hits = fusion.fuse(LEGS)
    assert scores(hits) == pytest.approx(expected)
    assert node_ids(hits) == [*expected]


@cases("fusion", FUSIONS)
def test_a_smaller_top_k_gives_the_beginning_of_the_ranking(fusion: Fusion) -> None:
    everything = fusion.fuse(LEGS)
    assert fusion.fuse(LEGS, top_k=1) == everything[:1]
    assert fusion.fuse(LEGS, top_k=99) == everything


@cases("fusion", FUSIONS)
def test_a_fusion_changes_no_ranking_and_is_repeatable(fusion: Fusion) -> None:
    before = copy.deepcopy(LEGS)
    first = fusion.fuse(LEGS)
    assert before == LEGS
    assert fusion.fuse(LEGS) == first
    assert all(
        hit is not hit_of_leg for hit in first for leg in LEGS.values() for hit_of_leg in leg
    )


@cases("make", WEIGHTED)
def test_weights_count_by_name_and_by_position(make: Callable[..., Fusion]) -> None:
    one, two = ranking(("a", 0.9), ("b", 0.8)), ranking(("b", 0.9), ("a", 0.8))
    legs = {"one": one, "two": two}
    assert node_ids(make((0.99, 0.01)).fuse(legs)) == ["a", "b"]
    assert node_ids(make((0.01, 0.99)).fuse(legs)) == ["b", "a"]
    by_name = make({"two": 0.99, "one": 0.01}).fuse(legs)
    assert by_name == make((0.01, 0.99)).fuse(legs)
    assert by_name == make(None).fuse(legs, weights={"two": 0.99, "one": 0.01})


def test_weights_of_legs_that_did_not_answer_are_ignored() -> None:
    assert WeightedSum({"x": 1, "y": 2}).fuse({"x": X}) == WeightedSum().fuse({"x": X})


@cases("make", WEIGHTED)
def test_a_leg_of_weight_zero_is_left_out(make: Callable[..., Fusion]) -> None:
    assert make((1, 0)).fuse(LEGS) == make((1,)).fuse({"x": X})


@cases("fusion", FUSIONS)
def test_an_id_that_a_leg_repeats_counts_once_at_its_first_place(fusion: Fusion) -> None:
    repeated = [X[0], X[1], X[0], X[2], *ranking(("a", 0.3), ("b", 0.9))]
    assert fusion.fuse({"x": repeated, "y": [*Y, *Y]}) == fusion.fuse(LEGS)


@cases("fusion", [RRF(), WeightedSum(), Max()])
def test_equal_scores_are_ordered_by_node_id(fusion: Fusion) -> None:
    legs = {name: ranking((name, 0.5)) for name in ("d", "b", "a", "c")}
    hits = fusion.fuse(legs)
    assert node_ids(hits) == ["a", "b", "c", "d"]
    assert len(set(scores(hits).values())) == 1


def test_nodes_are_identified_by_id_and_not_by_text() -> None:
    def hit(id_: str, score: float, **metadata: object) -> NodeWithScore:
        return NodeWithScore(
            node=TextNode(id_=id_, text="the same text", metadata=metadata), score=score
        )

    twins = {"one": [hit("p1", 0.9), hit("p2", 0.8)], "two": [hit("p2", 0.7)]}
    assert node_ids(RRF().fuse(twins)) == ["p2", "p1"]
    differing = {"one": [hit("p", 0.9, page=1)], "two": [hit("p", 0.8)]}
    (fused,) = RRF().fuse(differing)
    assert fused.score == pytest.approx(2 / 61)
    assert fused.node.metadata == {"page": 1}  # the first leg's


def test_contributions_hold_rank_score_weight_and_share_of_each_leg() -> None:
    hits = {hit.node.node_id: hit for hit in RRF(weights=WEIGHTS).fuse(LEGS)}
    assert hits["a"].contributions == (
        Contribution("x", rank=1, score=0.9, weight=3.0, share=3 / 61),
        Contribution("y", rank=2, score=4.0, weight=1.0, share=1 / 62),
    )
    assert hits["b"].contributions == (
        Contribution("x", rank=2, score=0.5, weight=3.0, share=3 / 62),
    )


@cases("fusion", ADDITIVE)
def test_the_shares_of_an_additive_fusion_sum_to_the_score(fusion: Fusion) -> None:
    for hit in fusion.fuse(LEGS):
        assert math.fsum(part.share for part in hit.contributions) == pytest.approx(hit.score)


def test_each_leg_can_have_its_own_normalisation() -> None:
    scales = {"x": Normalisation.COSINE, "y": Normalisation.NONE}
    hits = WeightedSum(weights=(3, 1), normalise=scales).fuse(LEGS)
    assert scores(hits) == pytest.approx(
        {"c": (3 * 0.55 + 8.0) / 4, "a": (3 * 0.95 + 4.0) / 4, "b": 3 * 0.75 / 4}
    )


def test_a_leg_without_a_normalisation_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="none for the leg 'y'"):
        WeightedSum(normalise={"x": Normalisation.COSINE}).fuse(LEGS)
