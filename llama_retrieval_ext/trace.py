"""The record of an answer: its steps, the parts that are missing from it, and details of stages."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, TypeAlias

from llama_retrieval_ext.errors import describe
from llama_retrieval_ext.lazy import Viewed

# A node's id, and its score where it has one.
ScoredId: TypeAlias = tuple[str, float | None]
# How many of the best hits an explanation notes.
_BEST: Final = 5


@dataclass(slots=True)
class Trace(Viewed):
    """One step of an answer, with the steps inside it. Filled while the step runs.

    Attributes:
        name: What ran: a retriever, a leg, a stage.
        started: Monotonic clock reading at the start, in seconds.
        duration_s: Seconds it took; None while it runs, or if it was abandoned.
        count: How many hits came out; None where hits are not what comes out.
        error: What went wrong, as ``TypeName: message``.
        notes: Further facts, such as the ids of its best hits.
        children: The steps inside, in the order they were begun.
        verbose: Whether the step and those inside it record their rankings.
        beside: Whether it runs beside its neighbours, as legs do, and not after the one before.
        ranking: Ids and scores of all hits that came out, best first; None unless verbose.
        requests: The retrievers that ran here, each with its query; empty unless verbose.
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
    ranking: tuple[ScoredId, ...] | None = field(default=None, repr=False)
    requests: list[object] = field(default_factory=list, repr=False)

    def begin(self, name: str, *, beside: bool = False) -> "Trace":
        """A new step inside this one."""
        child = Trace(name, verbose=self.verbose, beside=beside)
        self.children.append(child)
        return child

    def end(self, *, result: object = None, error: BaseException | None = None) -> None:
        """Close the step; later calls, of an abandoned leg, are ignored."""
        if self.duration_s is not None:
            return
        self.duration_s = time.perf_counter() - self.started
        if isinstance(result, list) and all(map(_is_hit, result[:1])):
            self._note_hits(((hit.node_id, hit.score) for hit in result), len(result))
        if error is not None:
            self.error = describe(error)

    def end_legs(self, rankings: Mapping[str, Sequence[ScoredId]]) -> None:
        """Add a finished step for each leg that this step, one request, searched for.

        Args:
            rankings: Ids and scores that each leg found, best first, by the name of the leg.
        """
        for name, ranking in rankings.items():
            leg = self.begin(name, beside=True)
            leg.started = self.started
            leg.end()
            leg._note_hits(ranking, len(ranking))  # noqa: SLF001 - of this class

    def _note_hits(self, ranking: Iterable[ScoredId], count: int) -> None:
        self.count = count
        if self.verbose:
            self.ranking = tuple(ranking)
            self.notes["top"] = [node_id for node_id, _ in self.ranking[:_BEST]]

    def snapshot(self) -> "Trace":
        """Return a copy that abandoned legs cannot change."""
        children = [child.snapshot() for child in list(self.children)]
        notes, requests = dict(self.notes), list(self.requests)
        return replace(self, notes=notes, children=children, requests=requests)

    def to_dict(self) -> dict[str, object]:
        """The step and all inside it, as JSON; times in milliseconds from the start of the step."""
        return self.since(self.started)

    def since(self, origin: float) -> dict[str, object]:
        """The step as JSON, with times from another step's start."""
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
        """The steps as an indented tree, a line each."""
        return "\n".join(self.lines())

    __repr__ = outline

    def lines(self, depth: int = 0) -> Iterator[str]:
        """The lines of the outline, indented by depth."""
        took = "unfinished" if self.duration_s is None else f"{self.duration_s * 1e3:.1f} ms"
        hits = "" if self.count is None else f", {self.count} hits"
        failed = "" if self.error is None else f", {self.error}"
        yield f"{'  ' * depth}{self.name}: {took}{hits}{failed}"
        for child in self.children:
            yield from child.lines(depth + 1)


@dataclass(frozen=True, slots=True)
class Degradation:
    """A part of the answer that is missing, and why.

    Attributes:
        where: The leg or stage that was left out, behind the legs it is in: ``outer/inner``.
        reason: What went wrong there.
    """

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


# A list that grows, or a count that adds up, when a stage notes more than once.
DetailValue: TypeAlias = list[object] | int


@dataclass(frozen=True, slots=True)
class Detail:
    """What a stage noted.

    Attributes:
        path: The legs on the way to the stage.
        name: Under which it goes.
        value: A list or a count.
        is_total: Whether the short name has the sum over all stages, or the outermost's value.
    """

    path: tuple[str, ...]
    name: str
    value: DetailValue
    is_total: bool = False


def details_by_path(noted: Sequence[Detail]) -> dict[str, object]:
    """The details of an answer as `SearchResult` shows them.

    Args:
        noted: In the order in which it was noted.

    Returns:
        By its path and name, ``leg/name``, what each stage inside a leg noted. By the name alone,
        what the outermost stages noted, or the sum over all stages where it is a total; stages
        equally far out add up in the order of their paths.

    Examples:
        >>> details_by_path([Detail(("law",), "routes", ["civil"]), Detail((), "routes", ["law"])])
        {'routes': ['law'], 'law/routes': ['civil']}

    """
    by_name: dict[str, DetailValue] = {}
    by_path: dict[str, DetailValue] = {}
    outermost: dict[str, int] = {}
    for each in sorted(noted, key=lambda each: (len(each.path), each.path)):
        depth = len(each.path)
        if depth == outermost.setdefault(each.name, depth) or each.is_total:
            _add_to(by_name, each.name, each.value)
        if each.path:
            _add_to(by_path, "/".join((*each.path, each.name)), each.value)
    return {**by_name, **by_path}


def _add_to(details: dict[str, DetailValue], name: str, value: DetailValue) -> None:
    # A new list: an abandoned leg must not write into a finished result.
    known = details.get(name)
    if isinstance(known, int) and isinstance(value, int):
        details[name] = known + value
    elif isinstance(known, list) and isinstance(value, list):
        details[name] = [*known, *value]
    else:
        details[name] = copy(value)


def _is_hit(value: object) -> bool:
    # Without `node`, which a lazy hit of a store would parse.
    return hasattr(value, "node_id") and hasattr(value, "score")
