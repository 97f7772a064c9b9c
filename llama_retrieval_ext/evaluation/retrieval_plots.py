"""Plots of a retrieval: its legs, stages, paths and proofs; each returns the matplotlib axes."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement, pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation.comparison import jaccard
from llama_retrieval_ext.evaluation.experiment import Experiment
from llama_retrieval_ext.evaluation.plots import (
    COLOURS,
    DARK,
    INK,
    PALE,
    colours,
    cut,
    drawable,
    finished,
    new_axes,
)
from llama_retrieval_ext.pipeline.explanation import Explanation
from llama_retrieval_ext.results import Hit, ProofEdge
from llama_retrieval_ext.trace import ScoredId, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

# Ids and scores for each question, by leg or retriever.
Rankings: TypeAlias = Mapping[str, Sequence[Sequence[ScoredId]]]

_COLUMNS: Final = 28
_PATH_COLUMNS: Final = 26
# Of arrows and the ground of their labels: white is readable on it, and it is visible on black.
_EDGE: Final = "#6b7480"
_TITLE_KEYS: Final = ("title", "file_name")
_STEP: Final = re.compile(r" (?:-(.{1,200}?)->|<-(.{1,200}?)-) ")


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
    by_name = {
        name: [score for ranking in rankings for _, score in ranking if score is not None]
        for name, rankings in _rankings(value).items()
    }
    scores = {name: values for name, values in by_name.items() if values}
    if not scores:
        raise ConfigurationError("nothing was found, so there are no scores to draw")
    axes = new_axes(axes, height=0.9 + 0.75 * len(scores))
    for place, ((name, values), (colour, marker)) in enumerate(
        zip(scores.items(), colours(scores).values(), strict=True)
    ):
        low, high = min(values), max(values)
        scaled = [(score - low) / ((high - low) or 1.0) for score in values]
        # Offset by rank, not randomly, so that the picture is the same each time.
        heights = place + 0.22 * np.sin(np.arange(len(values)) * 2.4)
        axes.scatter(scaled, heights, s=14, alpha=0.5, color=colour, marker=marker, label=name)
        low_quarter, median, high_quarter = np.quantile(scaled, [0.25, 0.5, 0.75])
        axes.hlines(place, low_quarter, high_quarter, color=INK, linewidth=5, alpha=0.8)
        axes.vlines(median, place - 0.3, place + 0.3, color=INK, linewidth=2)
    ranges = [
        f"{cut(n, _COLUMNS)}\n{min(values):.3g} to {max(values):.3g}"
        for n, values in scores.items()
    ]
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
        shares[a, b] = shares[b, a] = fmean(jaccard(one, other) for one, other in pairs)
    axes = new_axes(axes, width=2.6 + 0.8 * len(names), height=1.6 + 0.6 * len(names))
    axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    for row, column in np.ndindex(shares.shape):
        share = float(shares[row, column])
        colour = PALE if share > 0.6 else DARK  # noqa: PLR2004 - where white is readable
        axes.text(column, row, f"{100 * share:.0f} %", ha="center", va="center", color=colour)
    labels = drawable(cut(name, _COLUMNS) for name in names)
    axes.set_xticks(range(len(names)), labels, rotation=20, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), labels)
    return finished(axes, title=f"Overlap of the top {count}")


def plot_ranks(value: Explanation, *, most: int = 10, axes: "Axes | None" = None) -> "Axes":
    """Draw the rank of each hit after each stage.

    Each line is one hit; a gap means that the stage does not have the hit. Ranks beyond the lowest
    tick are drawn on it.

    Args:
        value: An explanation.
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
    for (title, course), (colour, marker) in zip(ranks, drawn.values(), strict=True):
        heights = [np.nan if rank is None else float(min(rank, floor)) for rank in course]
        axes.plot(heights, color=colour, marker=marker, markersize=5, linewidth=1.4, label=title)
        end = max(n for n, rank in enumerate(course) if rank is not None)
        label = cut(title, _COLUMNS)
        if end == len(course) - 1:
            axes.annotate(
                label, (end, heights[end]), (8, 0), textcoords="offset points", va="center"
            )
    axes.set_xticks(range(len(stages)), drawable(cut(stage, 22) for stage in stages))
    ticks = sorted({1, *range(5, floor, 5), floor})
    more = "+" if any((rank or 0) > floor for _, course in ranks for rank in course) else ""
    axes.set_yticks(ticks, [*map(str, ticks[:-1]), f"{ticks[-1]}{more}"])
    axes.set_ylim(floor + 0.7, 0.3)
    axes.set_xlim(-0.2, len(stages) - 0.8)
    axes.grid(axis="x", color=INK, alpha=0.3)
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
    all_legs = (
        [child for child in stage.children if child.beside and child.ranking is not None]
        for _, stage in step.walk()
    )
    return next((legs for legs in all_legs if len(legs) > 1), [step])


def _ranks_of(
    value: Explanation, most: int
) -> tuple[list[str], list[tuple[str, list[int | None]]]]:
    """Return the stage names, and the title and the rank after each stage for each hit."""
    if not isinstance(value, Explanation):
        raise ConfigurationError(
            f"expected an explanation, from retriever.explain(query), got {type(value).__name__}"
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
        (name for name in (*names, hit.node.ref_doc_id) if isinstance(name, str) and name),
        hit.node_id,
    )


class PathStep(NamedTuple):
    """Step of a path.

    Attributes:
        start: Node at the start of the step.
        relation: The type of the edge.
        end: Node at the end of the step.
        is_reversed: Whether the edge points from the end to the start.
    """

    start: str
    relation: str
    end: str
    is_reversed: bool = False


def plot_paths(
    hits: Iterable[Hit | PathStep], *, most: int = 8, axes: "Axes | None" = None
) -> "Axes":
    """Draw the paths and proofs of hits as one graph, from left to right, and return the axes.

    Args:
        hits: Result of a search by a graph or by rules, or the steps of a path.
        most: Maximum number of hits with a path or proof to draw, best first.
        axes: Axes to draw on; None for a new figure.

    Raises:
        ConfigurationError: No hit has a path or a proof.
        MissingDependencyError: The extra ``notebook`` is not installed.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> hit = Hit(node=TextNode(text="..."), score=1.0, path="crane -NEEDS-> helmet")
        >>> [text.get_text() for text in plot_paths([hit]).texts]
        ['crane', 'helmet', 'NEEDS']

    """
    steps = _first_steps(hits, most)
    if not steps:
        raise ConfigurationError(
            "no hit has a path or a proof; those of a GraphRetriever or a KGRuleRetriever have one"
        )
    columns = _columns(steps)
    rows = max(map(len, columns))
    axes = new_axes(axes, width=3.1 * len(columns), height=max(1.4, 0.62 * rows + 0.5))
    at = {
        name: (float(column), (rows - len(names)) / 2 + row)
        for column, names in enumerate(columns)
        for row, name in enumerate(names)
    }
    boxes = {name: _draw_box(axes, name, *place) for name, place in at.items()}
    for step in steps:
        _draw_step(axes, step, at, boxes)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_axis_off()
    return finished(axes, title="")


def _first_steps(hits: Iterable[Hit | PathStep], most: int) -> list[PathStep]:
    """Return the distinct steps of the first hits that have steps."""
    paths: list[list[PathStep]] = []
    for hit in hits:
        steps = [hit] if isinstance(hit, PathStep) else list(_steps_of(hit))
        if steps and (isinstance(hit, PathStep) or len(paths) < most):
            paths.append(steps)
    return list(dict.fromkeys(step for path in paths for step in path))


def _steps_of(hit: Hit) -> Iterator[PathStep]:
    if hit.proof:
        yield from map(_proved, hit.proof)
        return
    parts = _STEP.split(hit.path)
    for start, forth, back, end in zip(
        parts[::3], parts[1::3], parts[2::3], parts[3::3], strict=False
    ):
        yield PathStep(start, forth or back, end, is_reversed=forth is None)


def _proved(edge: ProofEdge) -> PathStep:
    source, arrow, target = edge.text.partition(f" -{edge.type}-> ")
    return (
        PathStep(source, edge.type, target)
        if arrow
        else PathStep(edge.source, edge.type, edge.target)
    )


def _columns(steps: Sequence[PathStep]) -> list[list[str]]:
    """Return names in columns by distance from a start, with connected names close together."""
    ends = {step.end for step in steps}
    distances = {step.start: 0 for step in steps if step.start not in ends}
    left = list(steps)
    while left:
        joined = [step for step in left if {step.start, step.end} & distances.keys()]
        for step in joined or left[:1]:
            near = distances.get(step.start, distances.get(step.end, 1) - 1)
            distances.setdefault(step.start, max(near, 0))
            distances.setdefault(step.end, distances[step.start] + 1)
            left.remove(step)
    columns: list[list[str]] = [[] for _ in range(max(distances.values()) + 1)]
    for name, distance in distances.items():
        columns[distance].append(name)
    for before, column in pairwise(columns):
        positions = {name: position for position, name in enumerate(before)}
        column.sort(key=lambda name: _mean_position(name, steps, positions))
    return columns


def _mean_position(name: str, steps: Sequence[PathStep], positions: dict[str, int]) -> float:
    starts = [
        positions[step.start] for step in steps if step.end == name and step.start in positions
    ]
    return sum(starts) / len(starts) if starts else float(len(positions))


def _draw_box(axes: "Axes", name: str, x: float, y: float) -> "Text":
    ground = "#fff3d6" if x == 0 else "#e8f1f8"
    box = {"boxstyle": "round,pad=0.4", "facecolor": ground, "edgecolor": COLOURS[0]}
    text = axes.text(x, y, cut(name, _PATH_COLUMNS), ha="center", va="center", fontsize=9, bbox=box)
    text.set_color(DARK)
    return text


def _draw_step(
    axes: "Axes", step: PathStep, at: dict[str, tuple[float, float]], boxes: dict[str, "Text"]
) -> None:
    from matplotlib.patches import FancyArrowPatch  # noqa: PLC0415 - optional

    source, target = (step.end, step.start) if step.is_reversed else (step.start, step.end)
    (x, y), (to_x, to_y) = at[source], at[target]
    arrow = FancyArrowPatch(
        (x, y),
        (to_x, to_y),
        patchA=boxes[source].get_bbox_patch(),
        patchB=boxes[target].get_bbox_patch(),
        arrowstyle="-|>",
        mutation_scale=10,
        color=_EDGE,
        connectionstyle=f"arc3,rad={0.3 if x == to_x else 0.0}",
        zorder=3.5,
    )
    axes.add_patch(arrow)
    label = axes.text((x + to_x) / 2, (y + to_y) / 2, cut(step.relation, _PATH_COLUMNS), zorder=4)
    ground = {"boxstyle": "round,pad=0.25", "facecolor": _EDGE, "edgecolor": "none"}
    label.set(ha="center", va="center", fontsize=7, bbox=ground, color=PALE)
