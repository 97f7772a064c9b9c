"""What happened while a query was answered: names, times, counts, errors."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(slots=True)
class Trace:
    """One step of an answer, with the steps inside it. Filled while the step runs.

    Attributes:
        name: What ran: a retriever, a leg, a stage.
        started: Monotonic clock reading at the start, in seconds.
        duration_s: Seconds it took; None while it runs, or if it was abandoned.
        count: How many hits came out; None where hits are not what comes out.
        error: What went wrong, as ``TypeName: message``.
        notes: What else the step wants to tell, such as the ids of its best hits.
        children: The steps inside, in the order they were begun.
    """

    name: str
    started: float = field(default_factory=time.perf_counter)
    duration_s: float | None = None
    count: int | None = None
    error: str | None = None
    notes: dict[str, object] = field(default_factory=dict)
    children: "list[Trace]" = field(default_factory=list)

    def begin(self, name: str) -> "Trace":
        """A new step inside this one."""
        child = Trace(name)
        self.children.append(child)
        return child

    def end(self, *, result: object = None, error: BaseException | None = None) -> None:
        """Close the step, once: what an abandoned leg says later does not count."""
        if self.duration_s is not None:
            return
        self.duration_s = time.perf_counter() - self.started
        if isinstance(result, list) and all(hasattr(hit, "node") for hit in result[:1]):
            self.count = len(result)
        if error is not None:
            self.error = describe(error)

    def snapshot(self) -> "Trace":
        """A copy that stays as it is, whatever abandoned legs still do."""
        children = [child.snapshot() for child in list(self.children)]
        return replace(self, notes=dict(self.notes), children=children)

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

    def _repr_html_(self) -> str:
        from llama_retrieval_ext.display.results import trace_html  # noqa: PLC0415 - a view

        return trace_html(self)

    def __rich__(self) -> "RenderableType":
        from llama_retrieval_ext.display.results import trace_console  # noqa: PLC0415 - a view

        return trace_console(self)

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


def describe(error: BaseException) -> str:
    """An error in one line: its type and message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
