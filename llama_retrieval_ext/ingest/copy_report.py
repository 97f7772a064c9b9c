"""What came of copying a knowledge base."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from llama_retrieval_ext.errors import IngestionError

if TYPE_CHECKING:
    from rich.console import RenderableType

_TOLD = 3


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What came of each document of a knowledge base that was copied.

    Attributes:
        copied: How many documents were written.
        unchanged: How many were there already, just so.
        removed: How many documents were removed from the target, because the source has them not.
        only_at_target: How many such documents the target still has.
        failures: What went wrong with the others, by their id and, where they are in one, scope.
        n_nodes: How many nodes were written.
        seconds: How long it took.

    Examples:
        >>> print(CopyReport(copied=2, n_nodes=7, seconds=0.25))
        2 copied, 0 unchanged; 7 nodes in 0.2 s

    """

    copied: int = 0
    unchanged: int = 0
    removed: int = 0
    only_at_target: int = 0
    failures: Mapping[str, Exception] = field(default_factory=dict)
    n_nodes: int = 0
    seconds: float = 0.0

    def raise_for_failures(self) -> Self:
        """The report itself, if nothing went wrong.

        Raises:
            IngestionError: Something did; ``failures`` has each document's error.
        """
        if not self.failures:
            return self
        told = "; ".join(f"{ref!r}: {error}" for ref, error in list(self.failures.items())[:_TOLD])
        raise IngestionError(
            f"{len(self.failures)} documents could not be copied, the others were ({told})",
            self.failures,
        ) from next(iter(self.failures.values()))

    def _repr_html_(self) -> str:
        from llama_retrieval_ext.display.ingestion import report_html  # noqa: PLC0415 - a view

        return report_html(self)

    def __rich__(self) -> "RenderableType":
        from llama_retrieval_ext.display.ingestion import report_console  # noqa: PLC0415 - a view

        return report_console(self)

    def __str__(self) -> str:
        removed = f", {self.removed} removed" if self.removed else ""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        more = f"; {self.only_at_target} only at the target" if self.only_at_target else ""
        return (
            f"{self.copied} copied, {self.unchanged} unchanged{removed}{failed}; "
            f"{self.n_nodes} nodes in {self.seconds:.1f} s{more}"
        )
