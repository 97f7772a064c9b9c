"""Who may tell what was found on the way: one source at a time, and nobody after its time."""

from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Generic, Self, TypeVar

from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.execution.frame import OnPartial, current_frame, entered

T = TypeVar("T")


class WhileOpen(Generic[T]):
    """Tells what it is told, until its ``with`` block ends: a late leg's thread lives on.

    Args:
        tell: Called by one thread at a time; None for nobody.

    Examples:
        >>> with WhileOpen(print) as tell:
        ...     tell("in time")
        in time
        >>> tell("too late")

    """

    __slots__ = ("_lock", "_tell")

    def __init__(self, tell: Callable[[T], None] | None) -> None:
        self._tell = tell
        self._lock = Lock()

    def __call__(self, told: T) -> None:
        """Tell it, if anybody still listens."""
        with self._lock:
            if self._tell is not None:
                self._tell(told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._tell = None


def heard(plan: Plan[T], on_partial: OnPartial | None) -> Plan[T]:
    """The same plan; what it finds on its way is told here, and nowhere else.

    A task of its own is not heard unless it is made so: those beside it would talk at once.

    Args:
        plan: What runs.
        on_partial: Who is told; None for nobody.
    """
    frame = current_frame()
    if frame is None or frame.on_partial is on_partial:
        return (yield from plan)
    with entered(replace(frame, on_partial=on_partial)):
        return (yield from plan)
