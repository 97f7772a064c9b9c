"""`plot_paths`: plot of the graph paths that led to hits."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation.axes import COLOURS, cut, finished, new_axes
from llama_retrieval_ext.results import Hit, ProofEdge

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

_STEP: Final = re.compile(r" (?:-(.+?)->|<-(.+?)-) ")
_COLUMNS: Final = 26


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
    return PathStep(source, edge.type, target) if arrow else PathStep(*_ids(edge))


def _ids(edge: ProofEdge) -> tuple[str, str, str]:
    return edge.source, edge.type, edge.target


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
        places = {name: place for place, name in enumerate(before)}
        column.sort(key=lambda name: _mean_place(name, steps, places))
    return columns


def _mean_place(name: str, steps: Sequence[PathStep], places: dict[str, int]) -> float:
    own = [places[step.start] for step in steps if step.end == name and step.start in places]
    return sum(own) / len(own) if own else float(len(places))


def _draw_box(axes: "Axes", name: str, x: float, y: float) -> "Text":
    ground = "#fff3d6" if x == 0 else "#e8f1f8"
    box = {"boxstyle": "round,pad=0.4", "facecolor": ground, "edgecolor": COLOURS[0]}
    return axes.text(x, y, cut(name, _COLUMNS), ha="center", va="center", fontsize=9, bbox=box)


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
        color="#5b6470",
        connectionstyle=f"arc3,rad={0.3 if x == to_x else 0.0}",
        zorder=3.5,
    )
    axes.add_patch(arrow)
    label = axes.text((x + to_x) / 2, (y + to_y) / 2, cut(step.relation, _COLUMNS), zorder=4)
    ground = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    label.set(ha="center", va="center", fontsize=7, bbox=ground)
