"""Plots of legs and stages of a retrieval; each function returns the matplotlib axes."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from statistics import fmean
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation.axes import colours, cut, drawable, finished, new_axes
from llama_retrieval_ext.evaluation.experiment import Experiment
from llama_retrieval_ext.pipeline.explanation import Explanation, ExplanationComparison
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.trace import ScoredId, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Ids and scores for each question, by leg or retriever.
Rankings: TypeAlias = Mapping[str, Sequence[Sequence[ScoredId]]]

_COLUMNS: Final = 28
_TITLE_KEYS: Final = ("title", "file_name")


def plot_scores(value: Explanation | Experiment, *, axes: "Axes | None" = None) -> "Axes":
    r"""Draw the distribution of the scores of each leg or retriever.

    Scores of different legs have different scales, so each leg is drawn from its lowest to its
    highest score, which are beside its name: one dot per hit, a bar between the quartiles, and a
    line at the median.

    Args:
        value: An explanation, whose legs are drawn, or an experiment, whose retrievers are.
        axes: Axes to draw on; None for a new figure.

    Raises:
        ConfigurationError: The value has another type, or no hits.
        MissingDependencyError: The extra ``notebook`` is not installed.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FixedRetriever
        >>> axes = plot_scores(FixedRetriever([("a", 0.9), ("b", 0.5)]).explain("leave"))
        >>> [label.get_text() for label in axes.get_yticklabels()]
        ['fixed\n0.5 to 0.9']

    """
    found = {
        name: [score for ranking in rankings for _, score in ranking if score is not None]
        for name, rankings in _rankings(value).items()
    }
    scores = {name: own for name, own in found.items() if own}
    if not scores:
        raise ConfigurationError("nothing was found, so there are no scores to draw")
    axes = new_axes(axes, height=0.9 + 0.75 * len(scores))
    for place, ((name, own), (colour, marker)) in enumerate(
        zip(scores.items(), colours(scores).values(), strict=True)
    ):
        low, high = min(own), max(own)
        scaled = [(score - low) / ((high - low) or 1.0) for score in own]
        # Offset by rank, not randomly, so that the picture is the same each time.
        heights = place + 0.22 * np.sin(np.arange(len(own)) * 2.4)
        axes.scatter(scaled, heights, s=14, alpha=0.5, color=colour, marker=marker, label=name)
        low_quarter, median, high_quarter = np.quantile(scaled, [0.25, 0.5, 0.75])
        axes.hlines(place, low_quarter, high_quarter, color="black", linewidth=5, alpha=0.55)
        axes.vlines(median, place - 0.3, place + 0.3, color="black", linewidth=2)
    ranges = [f"{cut(n, _COLUMNS)}\n{min(own):.3g} to {max(own):.3g}" for n, own in scores.items()]
    axes.set_yticks(range(len(scores)), drawable(ranges))
    axes.set_xticks([0.0, 0.5, 1.0], ["lowest", "middle", "highest"])
    axes.invert_yaxis()
    return finished(axes, title="Scores, each on its own scale")


def plot_overlap(
    value: Explanation | Experiment, *, depth: int = 10, axes: "Axes | None" = None
) -> "Axes":
    """Draw the overlap between the first hits of each pair of legs or retrievers.

    Args:
        value: An explanation, whose legs are compared, or an experiment, whose retrievers are.
        depth: Number of first hits to compare.
        axes: Axes to draw on; None for a new figure.

    Raises:
        ConfigurationError: The value has another type, or the depth is below 1.
        MissingDependencyError: The extra ``notebook`` is not installed.

    Source:
        The index of P. Jaccard: size of the intersection by size of the union; for several
        questions its mean.

    Examples:
        >>> from llama_retrieval_ext import RRF
        >>> from llama_retrieval_ext.testing.fakes import FixedRetriever
        >>> legs = [FixedRetriever([(id_, 1.0) for id_ in ids], name=ids) for ids in ("ab", "bc")]
        >>> axes = plot_overlap(((legs[0] | legs[1]) >> RRF()).explain("leave"))
        >>> [text.get_text() for text in axes.texts]
        ['100 %', '33 %', '33 %', '100 %']

    """
    count = check_count(depth, "depth")
    first = {
        name: [{id_ for id_, _ in ranking[:count]} for ranking in rankings]
        for name, rankings in _rankings(value).items()
    }
    names = list(first)
    shares = np.ones((len(names), len(names)))
    for a, b in combinations_with_replacement(range(len(names)), 2):
        pairs = zip(first[names[a]], first[names[b]], strict=True)
        shares[a, b] = shares[b, a] = fmean(_jaccard(one, other) for one, other in pairs)
    axes = new_axes(axes, width=2.6 + 0.8 * len(names), height=1.6 + 0.6 * len(names))
    axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    for row, column in np.ndindex(shares.shape):
        share = float(shares[row, column])
        colour = "white" if share > 0.6 else "black"  # noqa: PLR2004 - where white is readable
        axes.text(column, row, f"{100 * share:.0f} %", ha="center", va="center", color=colour)
    labels = drawable(cut(name, _COLUMNS) for name in names)
    axes.set_xticks(range(len(names)), labels, rotation=20, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), labels)
    return finished(axes, title=f"In both, of the first {count}")


def plot_ranks(
    value: Explanation | ExplanationComparison, *, most: int = 10, axes: "Axes | None" = None
) -> "Axes":
    """Draw the rank of each hit after each stage, or in each of two explanations.

    Each line is one hit; a gap means that the stage does not have the hit. Ranks beyond the lowest
    tick are drawn on it.

    Args:
        value: An explanation, or a comparison of two.
        most: Maximum number of hits to draw, best first.
        axes: Axes to draw on; None for a new figure.

    Raises:
        ConfigurationError: The value has another type, or no hits.
        MissingDependencyError: The extra ``notebook`` is not installed.

    Examples:
        >>> from llama_retrieval_ext import Top
        >>> from llama_retrieval_ext.testing.fakes import FixedRetriever
        >>> retriever = FixedRetriever([("a", 0.9), ("b", 0.5)]) >> Top(1)
        >>> axes = plot_ranks(retriever.explain("leave"))
        >>> [list(map(float, line.get_ydata())) for line in axes.lines]
        [[1.0, 1.0]]

    """
    stages, ranks = _ranks_of(value, check_count(most, "most"))
    if not ranks:
        raise ConfigurationError("nothing was found, so there are no ranks to draw")
    floor = max(2 * len(ranks), 10)
    axes = new_axes(axes, width=3.4 + 1.4 * len(stages), height=1.3 + 0.32 * len(ranks))
    drawn = colours(str(number) for number in range(len(ranks)))
    for (title, own), (colour, marker) in zip(ranks, drawn.values(), strict=True):
        heights = [np.nan if rank is None else float(min(rank, floor)) for rank in own]
        axes.plot(heights, color=colour, marker=marker, markersize=5, linewidth=1.4, label=title)
        end = max(n for n, rank in enumerate(own) if rank is not None)
        label = cut(title, _COLUMNS)
        if end == len(own) - 1:
            axes.annotate(
                label, (end, heights[end]), (8, 0), textcoords="offset points", va="center"
            )
    axes.set_xticks(range(len(stages)), drawable(cut(each, 22) for each in stages))
    ticks = sorted({1, *range(5, floor, 5), floor})
    more = "+" if any((rank or 0) > floor for _, own in ranks for rank in own) else ""
    axes.set_yticks(ticks, [*map(str, ticks[:-1]), f"{ticks[-1]}{more}"])
    axes.set_ylim(floor + 0.7, 0.3)
    axes.set_xlim(-0.2, len(stages) - 0.8)
    axes.grid(axis="x", color="#dddddd")
    return finished(axes, title="Where each hit stood", y="rank")


def _rankings(value: Explanation | Experiment) -> Rankings:
    """Return the rankings of an explanation's outermost legs or an experiment's retrievers."""
    if isinstance(value, Experiment):
        return {
            name: [[(h.node_id, h.score) for h in answer.hits] for answer in value.answers(name)]
            for name in value.retrievers
        }
    if not isinstance(value, Explanation):
        raise ConfigurationError(
            f"expected an explanation, from retriever.explain(query), or an Experiment; "
            f"got {type(value).__name__}"
        )
    return {leg.name: [list(leg.ranking or ())] for leg in _legs(value.recorded)}


def _legs(step: Trace) -> list[Trace]:
    """Return the outermost parallel legs; the whole step if there are none."""
    return next((legs for legs in _all_legs(step) if len(legs) > 1), [step])


def _all_legs(step: Trace) -> Iterator[list[Trace]]:
    yield [child for child in step.children if child.beside and child.ranking is not None]
    for child in step.children:
        yield from _all_legs(child)


def _ranks_of(
    value: Explanation | ExplanationComparison, most: int
) -> tuple[list[str], list[tuple[str, list[int | None]]]]:
    """Return the stage names, and the title and the rank after each stage for each hit."""
    if isinstance(value, ExplanationComparison):
        rows = [(_title(pair.hit), [pair.first, pair.second]) for pair in value.pairs[:most]]
        names = [each.query for each in (value.first, value.second)]
        return (names if names[0] != names[1] else ["first", "second"]), rows
    if not isinstance(value, Explanation):
        raise ConfigurationError(
            f"expected an explanation, from retriever.explain(query), or the comparison of two; "
            f"got {type(value).__name__}"
        )
    stages = value.stages
    rows = [
        (
            _title(hit),
            [at.rank if (at := stage.ranks.get(hit.node_id)) else None for stage in stages],
        )
        for hit in value.hits[:most]
    ]
    return [stage.name for stage in stages], rows


def _title(hit: Hit) -> str:
    names = (hit.metadata.get(key) for key in _TITLE_KEYS)
    return next(
        (each for each in (*names, hit.node.ref_doc_id) if isinstance(each, str) and each),
        hit.node_id,
    )


def _jaccard(one: set[str], other: set[str]) -> float:
    either = len(one | other)
    return len(one & other) / either if either else 1.0
