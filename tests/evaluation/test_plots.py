"""Plots of experiments and tunings: the data of what is drawn."""

from collections.abc import Callable
from typing import Any

import pytest

from llama_retrieval_ext import RRF, ConfigurationError, Hit, branches
from llama_retrieval_ext.evaluation import (
    Judgements,
    Level,
    plot_latency,
    plot_overlap,
    plot_paths,
    plot_ranks,
    plot_recall,
    plot_scores,
    plot_sweep,
    plots,
    tune,
)
from llama_retrieval_ext.testing.corpus import sample_nodes
from tests.cases import cases
from tests.evaluation.drawings import (
    DRAWING,
    closed,
    dots,
    draw_all,
    experiment,
    explained,
    fused,
    legs,
    lines,
)

__all__ = ["closed"]

pytestmark = DRAWING


def test_recall_agrees_with_the_measure_of_the_experiment() -> None:
    drawn = plot_recall(experiment())
    table = experiment().results.set_index("retriever")
    for name, depths, recalls in lines(drawn):
        assert depths == [1, 2, 3]
        assert recalls[-1] == pytest.approx(table["R@3"][name])
    assert drawn.get_title(loc="left") == "2 questions (labels)"


def test_the_front_of_quality_against_time_has_the_unbeaten_retrievers() -> None:
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


def test_a_sweep_shows_the_values_that_were_tried_and_the_chosen_one() -> None:
    words, meaning = legs()
    questions = {f"q{n}": f"leave {n}" for n in range(24)}
    judged = Judgements(questions, {question: {"c": 1} for question in questions}, Level.NODE)
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


def _sweep() -> Any:
    words, meaning = legs()
    questions = {f"q{n}": f"leave {n}" for n in range(24)}
    judged = Judgements(questions, {question: {"c": 1} for question in questions}, Level.NODE)
    tuning = tune(branches(words=words, meaning=meaning) >> RRF(), judged, progress=False)
    return plot_sweep(tuning, leg="meaning")


def _paths() -> Any:
    node = sample_nodes()[0]
    return plot_paths([Hit(node=node, score=1.0, path="crane -NEEDS-> helmet <-HAS- site")])


_PLOTS = {
    "recall": lambda: plot_recall(experiment()),
    "latency": lambda: plot_latency(experiment()),
    "sweep": _sweep,
    "scores": lambda: plot_scores(explained()),
    "overlap": lambda: plot_overlap(explained()),
    "overlap of an experiment": lambda: plot_overlap(experiment()),
    "ranks": lambda: plot_ranks(explained()),
    "paths": _paths,
}


@cases("plot", _PLOTS.values())
def test_plots_are_readable_on_white_and_on_black_without_a_box(plot: Callable[[], Any]) -> None:
    inline = pytest.importorskip("matplotlib_inline.backend_inline")
    drawn = plot()
    figure = drawn.get_figure()
    figure.canvas.draw()
    assert not inline._fetch_figure_metadata(figure)
    for colour, ground in _inks(drawn):
        if ground is None:
            assert min(_contrast(colour, "white"), _contrast(colour, "#111111")) >= 2, colour
        else:
            assert _contrast(colour, ground) >= 3.5, (colour, ground)


def _inks(drawn: Any) -> list[tuple[Any, Any]]:
    """Colours of what is drawn, with that of the ground below if it is not the notebook's."""
    from matplotlib.collections import Collection  # noqa: PLC0415 - slow to import
    from matplotlib.lines import Line2D  # noqa: PLC0415
    from matplotlib.text import Text  # noqa: PLC0415

    inks = [(line.get_color(), None) for line in drawn.findobj(Line2D) if line.get_visible()]
    for collection in drawn.findobj(Collection):
        inks += [(colour, None) for colour in collection.get_edgecolor()]
    for text in drawn.findobj(Text):
        if not (text.get_visible() and text.get_text()):
            continue
        ground = text.get_bbox_patch() and text.get_bbox_patch().get_facecolor()
        if drawn.images and text in drawn.texts:
            column, row = text.get_position()
            image = drawn.images[0]
            ground = image.cmap(image.norm(image.get_array()[row, column]))
        inks.append((text.get_color(), ground))
    assert inks
    return inks


def _contrast(one: Any, other: Any) -> float:
    """The contrast of WCAG 2: 1 to 21."""
    from matplotlib.colors import to_rgb  # noqa: PLC0415 - slow to import

    low, high = sorted(
        sum(
            weight * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
            for weight, part in zip((0.2126, 0.7152, 0.0722), to_rgb(colour), strict=True)
        )
        for colour in (one, other)
    )
    return float((high + 0.05) / (low + 0.05))


def test_letters_that_no_font_has_are_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "_CHINESE", ())
    plots._fonts.cache_clear()
    try:
        labels = [label.get_text() for label in plot_ranks(explained()).texts]
        assert "\N{WHITE SQUARE}" * 2 in labels
        assert "in no font" in plot_ranks(explained()).get_title(loc="right")
        draw_all()
    finally:
        plots._fonts.cache_clear()
