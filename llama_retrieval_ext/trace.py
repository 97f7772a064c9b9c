"""The record of an answer: its steps, its missing parts, and details of stages."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, TypeAlias

from llama_retrieval_ext.errors import describe
from llama_retrieval_ext.lazy import Viewed
from llama_retrieval_ext.wording import counted

# A node's id, and its score if it has one.
ScoredId: TypeAlias = tuple[str, float | None]
# Number of best hits that an explanation records.
_BEST: Final = 5


@dataclass(slots=True)
class Trace(Viewed):
    """One step of an answer, with its nested steps; filled while the step runs.

    Attributes:
        name: Name of the retriever, leg or stage.
        started: Monotonic clock reading at the start, in seconds.
        duration_s: Duration in seconds; None while the step runs, or if it was abandoned.
        count: Number of hits returned; None if the step does not return hits.
        error: The error, as ``TypeName: message``.
        notes: Further facts, such as the ids of the best hits.
        children: The nested steps, in start order.
        verbose: Whether the step and its nested steps record their rankings.
        beside: Whether the step runs in parallel with its siblings, as legs do.
        shares_time: Whether its time is that of the request that it is a part of.
        ranking: Ids and scores of all returned hits, best first; None unless verbose.
        requests: The retrievers that ran in this step, with their queries; empty unless verbose.
    """

    _view: ClassVar[str] = "results.trace"

    name: str
    started: float = field(default_factory=time.perf_counter)
    duration_s: float | None = None
    count: int | None = None
    error: str | None = None
    notes: dict[str, object] = field(default_factory=dict)
    children: "list[Trace]" = field(default_factory=list)
    verbose: bool = field(default=False, repr=False)
    beside: bool = field(default=False, repr=False)
    shares_time: bool = field(default=False, repr=False)
    ranking: tuple[ScoredId, ...] | None = field(default=None, repr=False)
    requests: list[object] = field(default_factory=list, repr=False)

    @property
    def took(self) -> str:
        """The time as text; empty for a leg of one request, which has no time of its own."""
        if self.shares_time:
            return ""
        return "unfinished" if self.duration_s is None else f"{self.duration_s * 1e3:.1f} ms"

    def begin(self, name: str, *, beside: bool = False) -> "Trace":
        """Start and return a nested step."""
        child = Trace(name, verbose=self.verbose, beside=beside)
        self.children.append(child)
        return child

    def end(self, *, result: object = None, error: BaseException | None = None) -> None:
        """Close the step; later calls, from an abandoned leg, are ignored."""
        if self.duration_s is not None:
            return
        self.duration_s = time.perf_counter() - self.started
        # `node` is not accessed, because a lazy hit of a store would parse it.
        if isinstance(result, list) and (
            not result or (hasattr(result[0], "node_id") and hasattr(result[0], "score"))
        ):
            self.count = len(result)
            if self.verbose:
                self._note_ranking((hit.node_id, hit.score) for hit in result)
        if error is not None:
            self.error = describe(error)

    def end_legs(self, rankings: Mapping[str, Sequence[ScoredId]]) -> None:
        """Add a finished step for each leg of one request, by name, with its ranking."""
        for name, ranking in rankings.items():
            leg = self.begin(name, beside=True)
            leg.started = self.started
            leg.shares_time = True
            leg.end()
            leg.count = len(ranking)
            if self.verbose:
                leg._note_ranking(ranking)  # noqa: SLF001 - of this class

    def _note_ranking(self, ranking: Iterable[ScoredId]) -> None:
        self.ranking = tuple(ranking)
        self.notes["top"] = [node_id for node_id, _ in self.ranking[:_BEST]]

    def snapshot(self) -> "Trace":
        """Return a copy that abandoned legs cannot modify."""
        children = [child.snapshot() for child in list(self.children)]
        notes, requests = dict(self.notes), list(self.requests)
        return replace(self, notes=notes, children=children, requests=requests)

    def to_dict(self) -> dict[str, object]:
        """Return the step with its nested steps as JSON; times in ms from the start of the step."""
        return self.since(self.started)

    def since(self, origin: float) -> dict[str, object]:
        """Return the step as JSON, with times relative to another step's start."""
        return {
            "name": self.name,
            "start_ms": round((self.started - origin) * 1e3, 3),
            "duration_ms": None if self.duration_s is None else round(self.duration_s * 1e3, 3),
            "count": self.count,
            "error": self.error,
            "notes": dict(self.notes),
            "children": [child.since(origin) for child in self.children],
        }

    def outline(self) -> str:
        """Return the steps as an indented tree, one line each."""
        return "\n".join(self.lines())

    __repr__ = outline

    def lines(self) -> Iterator[str]:
        """Yield the lines of the outline, indented by depth."""
        for depth, step in self.walk(folded=True):
            hits = "" if step.count is None else counted(step.count, "hit")
            facts = ", ".join(filter(None, [step.took, hits, step.error]))
            yield f"{'  ' * depth}{step.name}: {facts}"

    def walk(self, depth: int = 0, *, folded: bool = False) -> "Iterator[tuple[int, Trace]]":
        """Yield the step and its nested steps with their depths, outer before inner.

        ``folded`` leaves out steps that only contain one of the same name with the same error.
        """
        inner = [(child.name, child.error) for child in self.children]
        if folded and inner == [(self.name, self.error)]:
            depth -= 1
        else:
            yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1, folded=folded)


@dataclass(frozen=True, slots=True)
class Degradation:
    """A missing part of the answer, with the reason.

    Attributes:
        where: Path of the leg or stage that was left out: ``outer/inner``.
        reason: The error.
    """

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


# Repeated notes of a stage extend the list or add to the count.
DetailValue: TypeAlias = list[object] | int | str


@dataclass(frozen=True, slots=True)
class Detail:
    """A detail that a stage recorded.

    Attributes:
        path: The legs that contain the stage, outermost first.
        name: Name of the detail.
        value: A list, a count or an id.
        is_total: Whether the plain name holds the sum over all stages; otherwise it holds the
            value of the outermost ones.
    """

    path: tuple[str, ...]
    name: str
    value: DetailValue
    is_total: bool = False


def details_by_path(noted: Sequence[Detail]) -> dict[str, object]:
    """Return the details of an answer in the form of ``SearchResult.details``.

    Args:
        noted: The details, in the order in which they were recorded.

    Returns:
        Under path and name, ``leg/name``, the detail of each stage inside a leg. Under the plain
        name, that of the outermost stages, or for a total the sum over all stages; stages of the
        same depth are combined in the order of their paths.

    Examples:
        >>> details_by_path([Detail(("law",), "routes", ["civil"]), Detail((), "routes", ["law"])])
        {'routes': ['law'], 'law/routes': ['civil']}

    """
    by_name: dict[str, DetailValue] = {}
    by_path: dict[str, DetailValue] = {}
    outermost: dict[str, int] = {}
    for detail in sorted(noted, key=lambda detail: (len(detail.path), detail.path)):
        depth = len(detail.path)
        if depth == outermost.setdefault(detail.name, depth) or detail.is_total:
            _add_to(by_name, detail.name, detail.value)
        if detail.path:
            _add_to(by_path, "/".join((*detail.path, detail.name)), detail.value)
    return {**by_name, **by_path}


def _add_to(details: dict[str, DetailValue], name: str, value: DetailValue) -> None:
    # A new list: an abandoned leg must not modify a finished result.
    before = details.get(name)
    if isinstance(before, int) and isinstance(value, int):
        details[name] = before + value
    elif isinstance(before, list) and isinstance(value, list):
        details[name] = [*before, *value]
    else:
        details[name] = copy(value)
