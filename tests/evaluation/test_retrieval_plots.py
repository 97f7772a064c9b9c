"""Plots of a retrieval: the data of what is drawn."""

import math
from typing import Any

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import ConfigurationError
from llama_retrieval_ext.evaluation import plot_overlap, plot_paths, plot_ranks, plot_scores
from llama_retrieval_ext.evaluation.plots import drawable
from llama_retrieval_ext.results import Hit, ProofEdge
from tests.evaluation.drawings import DRAWING, closed, dots, experiment, explained, lines

__all__ = ["closed"]

pytestmark = DRAWING


def test_scores_are_those_of_each_leg_on_its_own_scale() -> None:
    drawn = plot_scores(explained())
    scaled = {leg: [x for x, _ in each] for leg, each in dots(drawn, step=3).items()}
    assert scaled["words"] == pytest.approx([1, 1 / 6, 0])
    assert scaled["meaning"] == pytest.approx([1, 7 / 8, 0])
    labels = [label.get_text() for label in drawn.get_yticklabels()]
    assert labels == ["words\n3 to 9", "meaning\n0.1 to 0.9"]
    assert len(plot_scores(experiment()).get_yticks()) == 3


def test_overlap_is_of_the_first_hits_and_a_mean_over_questions() -> None:
    def shares(drawn: Any) -> list[list[float]]:
        shown: list[list[float]] = drawn.images[0].get_array().tolist()
        return shown

    third = pytest.approx(1 / 3)
    assert shares(plot_overlap(explained(), depth=2)) == [[1, third], [third, 1]]
    assert shares(plot_overlap(experiment()))[0][1] == pytest.approx(0.5)


def test_ranks_are_those_after_each_stage_and_gaps_where_a_stage_had_not_the_hit() -> None:
    drawn = plot_ranks(explained())
    stages = [label.get_text() for label in drawn.get_xticklabels()]
    assert stages[:2] == ["words", "meaning"]
    ranks = {label: own for label, _, own in lines(drawn)}
    assert ranks["a"][:2] == [1, 2]
    assert ranks["a"][-1] == 1
    assert ranks["b"][0] == 2
    assert math.isnan(ranks["b"][1])


def test_paths_and_proofs_are_one_graph_whose_arrows_have_the_direction_of_its_edges() -> None:
    proof = ProofEdge("crane", "HAS", "fall", "塔吊 -HAS-> 坠落")
    hits = [
        Hit(node=TextNode(text="1"), path="塔吊 -HAS-> 坠落 <-PREVENTS- helmet"),
        Hit(node=TextNode(text="2"), proof=(proof,)),
        Hit(node=TextNode(text="no path")),
    ]
    drawn = plot_paths(hits)
    at = {text.get_text(): text.get_position() for text in drawn.texts}
    if drawable(["塔吊"]) == ["塔吊"]:
        assert at["塔吊"][0] < at["坠落"][0] < at["helmet"][0]
    patches: list[Any] = list(drawn.patches)
    arrows = [arrow._posA_posB for arrow in patches]
    assert len(arrows) == 2
    (source, _), (target, _) = arrows[1]
    assert source > target, "from the helmet back to the fall"
    with pytest.raises(ConfigurationError, match="no hit has a path or a proof"):
        plot_paths(hits[2:])
