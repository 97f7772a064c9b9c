"""Axes with colours and fonts for everyone, and plots of experiments and tunings on them."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import cycle
from statistics import fmean
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.cells import cell_len

from llama_retrieval_ext.errors import ConfigurationError, optional_module
from llama_retrieval_ext.evaluation.experiment import Experiment
from llama_retrieval_ext.evaluation.judgements import Judgements
from llama_retrieval_ext.evaluation.measures import measure_queries
from llama_retrieval_ext.evaluation.tuning import Tuning
from llama_retrieval_ext.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DEPTHS: Final = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_COLUMNS: Final = 28


def plot_recall(experiment: Experiment, *, axes: "Axes | None" = None) -> "Axes":
    """Draw the recall of each retriever by the number of first hits.

    Args:
        experiment: An experiment that has run.
        axes: Axes to draw on; None for a new figure.

    Raises:
        ConfigurationError: The experiment has not run.
        MissingDependencyError: The extra ``notebook`` or ``eval`` is not installed.

    Examples:
        >>> from llama_retrieval_ext.evaluation import Judgements
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> judged = Judgements({"q1": "leave"}, {"q1": {"a": 1, "b": 1}})
        >>> found = {"fake": FakeRetriever([("a", 1.0), ("b", 0.5)])}
        >>> axes = plot_recall(Experiment(found, judged, measures=["RR"]).run(progress=False))
        >>> list(map(float, axes.lines[0].get_ydata()))
        [0.5, 1.0]

    """
    runs = {name: experiment.run_of(name) for name in experiment.retrievers}
    longest = max(len(ranking) for run in runs.values() for ranking in run.values())
    depths = sorted({*(depth for depth in _DEPTHS if depth < longest), max(longest, 1)})
    measures = [f"R@{depth}" for depth in depths]
    axes = new_axes(axes)
    for (name, run), (colour, marker) in zip(runs.items(), colours(runs).values(), strict=True):
        measured = measure_queries(measures, experiment.judgements.relevant, run)
        means = [fmean(values.values()) for values in measured.values()]
        axes.plot(depths, means, color=colour, marker=marker, label=drawable([name])[0])
    axes.set_xscale("log")
    axes.set_xticks(depths, list(map(str, depths)))
    axes.minorticks_off()
    axes.set_ylim(0.0, 1.03)
    axes.legend(frameon=False)
    return finished(axes, title=_title(experiment.judgements), x="hits looked at", y="recall")


def plot_latency(
    experiment: Experiment,
    *,
    measure: str | None = None,
    percentile: int = 50,
    axes: "Axes | None" = None,
) -> "Axes":
    """Draw the quality of each retriever against its latency, with the Pareto front.

    For a retriever below the line, another one is at least as good and as fast.

    Args:
        experiment: An experiment that has run.
        measure: Name of one of its measures; None for the first.
        percentile: Percentile of the latency: 50 or 95.
        axes: Axes to draw on; None for a new figure.

    Raises:
        ConfigurationError: The experiment has not run, or has no such measure or percentile.
        MissingDependencyError: The extra ``notebook`` is not installed.

    Examples:
        >>> from llama_retrieval_ext.evaluation import Judgements
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> judged, found = Judgements({"q1": "leave"}, {"q1": {"a": 1}}), FakeRetriever([("a", 1)])
        >>> axes = plot_latency(Experiment([found], judged, measures=["RR"]).run(progress=False))
        >>> axes.get_ylabel()
        'RR'

    """
    name, column = measure or experiment.measures[0], f"p{percentile}_ms"
    table = experiment.results
    if name not in experiment.measures or column not in table:
        raise ConfigurationError(
            f"the experiment has no {name!r} at percentile {percentile}; its measures are "
            f"{', '.join(experiment.measures)}, and the percentiles 50 and 95"
        )
    axes = new_axes(axes)
    points = list(zip(table[column], table[name], table["retriever"], strict=True))
    drawn = colours(table["retriever"])
    for number, (ms, quality, retriever) in enumerate(sorted(points)):
        colour, marker = drawn[retriever]
        axes.scatter([ms], [quality], color=colour, marker=marker, s=60, zorder=3, label=retriever)
        label = cut(retriever, _COLUMNS)
        axes.annotate(
            label, (ms, quality), (6, -13 if number % 2 else 6), textcoords="offset points"
        )
    front = _front((ms, quality) for ms, quality, _ in points)
    times, values = zip(*front, strict=True)
    axes.plot(times, values, drawstyle="steps-post", color=INK, linestyle="--", zorder=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}" if times[-1] < 10 * times[0] else "")
    axes.margins(0.18)
    title = _title(experiment.judgements)
    return finished(axes, title=title, x=f"milliseconds (percentile {percentile})", y=name)


def plot_sweep(tuning: Tuning, *, leg: str | None = None, axes: "Axes | None" = None) -> "Axes":
    """Draw the results of `tune`: the measure by the weight of a leg, one line per fusion.

    A ring marks the default, with a band of one standard error around its fusion; a star marks the
    setting chosen instead. With more than two legs, each point uses the best weights of the other
    legs. For a graph walk, the horizontal axis is the damping.

    Args:
        tuning: A tuning with measurements.
        leg: Leg whose weight is the horizontal axis; None for the first.
        axes: Axes to draw on; None for a new figure.

    Raises:
        ConfigurationError: Nothing was measured, or there is no such leg.
        MissingDependencyError: The extra ``notebook`` is not installed.

    Examples:
        >>> from llama_retrieval_ext import RRF, BM25Retriever
        >>> from llama_retrieval_ext.evaluation import Judgements, Level, tune
        >>> from llama_retrieval_ext.testing.corpus import sample_nodes
        >>> legs = BM25Retriever(sample_nodes()) | BM25Retriever(sample_nodes()[:3])
        >>> questions = {f"q{n}": "annual leave" for n in range(20)}
        >>> relevant = {each: {sample_nodes()[0].node_id: 1} for each in questions}
        >>> judged = Judgements(questions, relevant, Level.NODE)
        >>> plot_sweep(tune(legs >> RRF(), judged, progress=False)).get_ylabel()
        'nDCG@10'

    """
    if not tuning.sweep:
        raise ConfigurationError(f"tune measured nothing: {tuning.verdict}")
    default = tuning.sweep[0]
    weights = [setting for setting in default if setting.startswith("weight of ")]
    column = weights[0] if weights else "damping"
    if leg is not None:
        column = f"weight of {leg}"
    if column not in default:
        legs = ", ".join(weight.removeprefix("weight of ") for weight in weights)
        raise ConfigurationError(f"there is no leg {leg!r} with a weight; the legs are {legs}")
    axes = new_axes(axes, width=7.6, height=4.0)
    lines = _swept(tuning, column)
    for (formula, line), (colour, marker) in zip(
        lines.items(), colours(lines).values(), strict=False
    ):
        values, means, errors = zip(*line, strict=True)
        label = cut(formula.replace("Normalisation.", "").replace("normalise=", ""), 48)
        axes.plot(values, means, color=colour, marker=marker, label=label, markersize=4)
        if formula == str(default["fusion"]):
            low, high = np.subtract(means, errors), np.add(means, errors)
            axes.fill_between(values, low, high, color=colour, alpha=0.12, linewidth=0)
    for row, marker, label in ((default, "o", "default"), (_chosen(tuning), "*", "chosen")):
        if row is not None:
            x, y = _number(row[column]), _number(row[tuning.measure])
            dot = axes.scatter([x], [y], s=170, marker=marker, label=label, zorder=4)
            dot.set(facecolors="none", edgecolors=INK)
    axes.legend(frameon=False, fontsize="small")
    return finished(axes, title=_title(tuning.judgements), x=column, y=tuning.measure)


def _front(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other point beats in both values, sorted by time."""
    front: list[tuple[float, float]] = []
    for ms, quality in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or quality > front[-1][1]:
            front.append((ms, quality))
    return front


def _swept(tuning: Tuning, column: str) -> dict[str, list[tuple[float, float, float]]]:
    """Return value, mean and standard error by fusion, with defaults for all else."""
    default = tuning.sweep[0]
    others = {"depth", "mmr_lambda", "damping"} - {column}
    rows = [
        row
        for row in tuning.sweep
        if all(row.get(setting) == default.get(setting) for setting in others)
    ]
    lines: dict[str, dict[float, tuple[float, float, float]]] = {}
    for row in sorted(rows, key=lambda row: _number(row[tuning.measure])):
        at, mean = _number(row[column]), _number(row[tuning.measure])
        point = (at, mean, _number(row["standard_error"]))
        lines.setdefault(str(row["fusion"]), {})[at] = point  # the best point is last
    default_line = lines.pop(
        str(default["fusion"])
    )  # drawn last, on top; a line below it is left out
    shown = {name: line for name, line in lines.items() if line != default_line}
    return {
        name: sorted(line.values())
        for name, line in {**shown, str(default["fusion"]): default_line}.items()
    }


def _chosen(tuning: Tuning) -> Mapping[str, object] | None:
    """Return the row chosen instead of the default; None if the default stays."""
    changed = {choice.after for choice in tuning.choices if choice.after != choice.before}
    for row in tuning.sweep:
        named = [(k.removeprefix("weight of "), v) for k, v in row.items() if "weight of " in k]
        weights = ", ".join(f"{leg} {_number(weight):.2g}" for leg, weight in named)
        if {f"{row['fusion']} with {weights}", str(row["damping"])} & changed:
            return row
    return None


def _number(value: object) -> float:
    return float(str(value))


def _title(judgements: Judgements) -> str:
    return f"{counted(len(judgements), 'question')} ({judgements.origin})"


# Colours by Okabe and Ito, "Color Universal Design", 2008; without yellow, too pale on white, and
# with grey for black, which a dark theme hides.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a8f96")
# Of texts and lines: contrast of about 4 on white and on black.
INK: Final = "#7d828a"
# Of the labels at the vertical axis: a shade darker, which the eye does not see. IPython puts a box
# behind a transparent figure whose tick labels are all lighter, or all darker, than a middle grey;
# these two are at either side of it.
_INK_Y: Final = "#7a7f87"
# Of texts on a coloured ground: one is readable on pale, the other on dark.
DARK: Final = "#1f2328"
PALE: Final = "#ffffff"
_MARKERS: Final = "osD^vPX"
# Fonts with Chinese characters on Linux, Windows and macOS.
_CHINESE: Final = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "SimHei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti TC",
    "Arial Unicode MS",
    "Droid Sans Fallback",
)
_NORMAL: Final = 400
_MISSING: Final = "\N{WHITE SQUARE}"
_NOTE: Final = f"{_MISSING}: in no font of this machine; Noto Sans CJK has Chinese"


def new_axes(axes: "Axes | None", *, width: float = 6.4, height: float = 3.6) -> "Axes":
    """Return the passed axes, or those of a new figure."""
    if axes is not None:
        return axes
    pyplot = optional_module("matplotlib.pyplot", "plotting", "notebook")
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]  # type: ignore[no-any-return]  # a module's Any


def finished(axes: "Axes", *, title: str, x: str = "", y: str = "") -> "Axes":
    """Return the axes with titles, without a frame, in fonts that cover the texts.

    The background is transparent, and texts are grey, to fit light and dark themes. A character
    that no font has is drawn as an empty square, and a note says so.
    """
    from matplotlib.text import Text  # noqa: PLC0415 - optional

    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params("x", which="both", color=INK, labelcolor=INK)
    axes.tick_params("y", which="both", color=INK, labelcolor=_INK_Y)
    for patch in (axes.patch, axes.get_figure(root=True).patch):  # type: ignore[union-attr]  # drawn
        patch.set_alpha(0)
    families, letters = _fonts()
    for text in axes.findobj(Text):
        if isinstance(text, Text):
            text.set_fontfamily(list(families))
            if text.get_color() == "black":
                text.set_color(INK)
            text.set_text(_drawable(text.get_text(), letters))
    if any(_MISSING in text.get_text() for text in axes.findobj(Text) if isinstance(text, Text)):
        axes.set_title(_NOTE, loc="right", fontsize="x-small", color=INK)
    return axes


def drawable(texts: Iterable[str]) -> list[str]:
    """Return texts with an empty square for each character that no font has."""
    letters = _fonts()[1]
    return [_drawable(text, letters) for text in texts]


def colours(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a marker for each name."""
    return dict(zip(names, cycle(zip(COLOURS, _MARKERS, strict=True)), strict=False))


def cut(text: str, columns: int) -> str:
    """Return a text on one line of limited width; its middle is cut out if too long.

    Examples:
        >>> cut("annual leave of employees", 12), cut("中华人民共和国安全生产法#第九条", 16)
        ('annual…oyees', '中华人民…#第九条')

    """
    line = " ".join(text.split())
    if cell_len(line) > columns:
        head, tail = line, line
        while cell_len(head) > (columns - 1) * 0.6:
            head = head[:-1]
        while cell_len(head) + cell_len(tail) > columns - 1:
            tail = tail[1:]
        line = f"{head.rstrip()}…{tail.lstrip()}"
    return line.replace("$", r"\$")  # an unescaped $ starts a formula


def _drawable(text: str, letters: frozenset[int]) -> str:
    return "".join(
        letter if letter.isspace() or ord(letter) in letters else _MISSING for letter in text
    )


@cache
def _fonts() -> tuple[tuple[str, ...], frozenset[int]]:
    """Return the font families to draw with, and the characters that they cover."""
    from matplotlib import rcParams  # noqa: PLC0415 - optional
    from matplotlib.font_manager import FontProperties, findSystemFonts, fontManager  # noqa: PLC0415
    from matplotlib.ft2font import FT2Font  # noqa: PLC0415

    chinese = _chinese_font()
    if chinese is None:
        for path in set(findSystemFonts()) - {font.fname for font in fontManager.ttflist}:
            with suppress(OSError, RuntimeError):  # installed after matplotlib's scan, or broken
                fontManager.addfont(path)
        chinese = _chinese_font()
    families = (*rcParams["font.family"], *([chinese] if chinese else []))
    paths = {fontManager.findfont(FontProperties(family=[name])) for name in families}
    letters = frozenset(code for path in paths for code in FT2Font(path).get_charmap())
    return families, letters


def _chinese_font() -> str | None:
    """Return the first installed font with Chinese characters."""
    from matplotlib.font_manager import fontManager  # noqa: PLC0415

    fonts = {font.name: font for font in fontManager.ttflist}
    name = next((name for name in _CHINESE if name in fonts), None)
    if name and not any(
        font.name == name and font.weight == _NORMAL for font in fontManager.ttflist
    ):
        # Avoids matplotlib's warning that it uses another weight.
        fontManager.ttflist.append(replace(fonts[name], weight=_NORMAL))
    return name
