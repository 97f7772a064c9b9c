"""What plots show: the data of what is drawn, and texts that can be read."""

import math
import warnings
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import RRF, ConfigurationError, Explanation, Retriever, Top, branches
from llama_retrieval_ext.evaluation import (
    Experiment,
    Judgements,
    Level,
    axes,
    plot_latency,
    plot_overlap,
    plot_paths,
    plot_ranks,
    plot_recall,
    plot_scores,
    plot_sweep,
    tune,
)
from llama_retrieval_ext.results import Hit, ProofEdge
from llama_retrieval_ext.testing.fakes import FixedRetriever

pytestmark = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="the extra 'notebook' is not installed"
)


def dots(drawn: Any, *, step: int = 1) -> dict[str, list[list[float]]]:
    """The positions of dots, by their label."""
    return {each.get_label(): each.get_offsets().tolist() for each in drawn.collections[::step]}


def lines(drawn: Any) -> list[tuple[str, list[float], list[float]]]:
    """Labels and coordinates of lines."""
    return [(e.get_label(), list(e.get_xdata()), list(e.get_ydata())) for e in drawn.lines]


def draw_all() -> None:
    import matplotlib.pyplot as plt  # noqa: PLC0415 - slow to import

    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
    plt.close("all")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Every plot can be drawn without a warning, and is closed."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_all()


@cache
def legs() -> tuple[Retriever, Retriever]:
    words = FixedRetriever([("a", 9.0), ("b", 4.0), ("年假", 3.0)], name="词")
    return words, FixedRetriever([("年假", 0.9), ("a", 0.8), ("c", 0.1)], name="$meaning$")


def fused() -> Retriever:
    words, meaning = legs()
    return branches(words=words, meaning=meaning) >> RRF() >> Top(3)


def explained() -> Explanation:
    return fused().explain("annual leave")


@cache
def experiment() -> Experiment:
    words, meaning = legs()
    judged = Judgements(
        {"q1": "leave", "q2": "年假"}, {"q1": {"a": 1, "c": 1}, "q2": {"年假": 1}}, Level.NODE
    )
    found = {"words": words, "meaning": meaning, "both": fused()}
    return Experiment(found, judged, measures=["RR", "R@3"]).run(progress=False)


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
    compared = plot_ranks(legs()[0].explain("one").compare(legs()[1].explain("two")))
    assert [label.get_text() for label in compared.get_xticklabels()] == ["one", "two"]
    assert lines(compared)[0][2] == [1, 2]


def test_recall_agrees_with_the_measure_of_the_experiment() -> None:
    drawn = plot_recall(experiment())
    table = experiment().results.set_index("retriever")
    for name, depths, recalls in lines(drawn):
        assert depths == [1, 2, 3]
        assert recalls[-1] == pytest.approx(table["R@3"][name])
    assert drawn.get_title(loc="left") == "2 questions (labels)"


def test_the_front_of_quality_against_time_has_what_nothing_beats() -> None:
    drawn = plot_latency(experiment(), measure="RR", percentile=95)
    table = experiment().results
    assert dots(drawn) == {
        row["retriever"]: [[row["p95_ms"], row["RR"]]] for row in table.to_dict("records")
    }
    [(_, _, qualities)] = lines(drawn)
    assert qualities == sorted(set(qualities))
    assert qualities[-1] == table["RR"].max()
    with pytest.raises(ConfigurationError, match="measures are RR, R@3"):
        plot_latency(experiment(), measure="AP")


def test_a_sweep_shows_the_values_that_were_tried_and_what_was_chosen() -> None:
    words, meaning = legs()
    questions = {f"q{n}": f"leave {n}" for n in range(24)}
    judged = Judgements(questions, {each: {"c": 1} for each in questions}, Level.NODE)
    tuning = tune(branches(words=words, meaning=meaning) >> RRF(), judged, progress=False)
    assert tuning.is_changed
    drawn = plot_sweep(tuning, leg="meaning")
    default = tuning.sweep[0]
    _, weights, values = lines(drawn)[-1]
    tried = {
        (row["weight of meaning"], row[tuning.measure])
        for row in tuning.sweep
        if (row["fusion"], row["depth"]) == (default["fusion"], default["depth"])
    }
    assert set(zip(weights, values, strict=True)) == tried
    marked = dots(drawn)
    assert marked["default"] == [[0.5, default[tuning.measure]]]
    assert marked["chosen"][0][1] > marked["default"][0][1]
    with pytest.raises(ConfigurationError, match="the legs are words, meaning"):
        plot_sweep(tuning, leg="wrods")
    with pytest.raises(ConfigurationError, match="measured nothing: Nothing changed"):
        plot_sweep(tune(fused(), experiment().judgements, progress=False))


def test_paths_and_proofs_are_one_graph_whose_arrows_have_the_direction_of_its_edges() -> None:
    proof = ProofEdge("crane", "HAS", "fall", "塔吊 -HAS-> 坠落")
    hits = [
        Hit(node=TextNode(text="1"), path="塔吊 -HAS-> 坠落 <-PREVENTS- helmet"),
        Hit(node=TextNode(text="2"), proof=(proof,)),
        Hit(node=TextNode(text="no path")),
    ]
    drawn = plot_paths(hits)
    at = {text.get_text(): text.get_position() for text in drawn.texts}
    if axes.drawable(["塔吊"]) == ["塔吊"]:
        assert at["塔吊"][0] < at["坠落"][0] < at["helmet"][0]
    patches: list[Any] = list(drawn.patches)
    arrows = [arrow._posA_posB for arrow in patches]
    assert len(arrows) == 2
    (source, _), (target, _) = arrows[1]
    assert source > target, "from the helmet back to the fall"
    with pytest.raises(ConfigurationError, match="no hit has a path or a proof"):
        plot_paths(hits[2:])


def test_letters_that_no_font_has_are_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axes, "_CHINESE", ())
    axes._fonts.cache_clear()
    try:
        labels = [label.get_text() for label in plot_ranks(explained()).texts]
        assert "\N{WHITE SQUARE}" * 2 in labels
        draw_all()
    finally:
        axes._fonts.cache_clear()
