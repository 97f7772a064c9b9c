"""Reports of adding and copying documents, and the progress bar."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import ClassVar, Self

from tqdm import tqdm  # type: ignore[import-untyped]

from llama_retrieval_ext.errors import DuplicateNodeError, IngestionError
from llama_retrieval_ext.knowledge_base.documents import DocumentKey, Prepared, SourceDocument
from llama_retrieval_ext.knowledge_base.ledger.journal import WriteOutcome
from llama_retrieval_ext.lazy import Viewed

_SHOWN = 3


class _Report(Viewed):
    """Base of reports with an outcome for each document."""

    __slots__ = ()

    _view: ClassVar[str] = "reports.report"
    _done: ClassVar[str]
    failures: Mapping[str, Exception]

    def raise_for_failures(self) -> Self:
        """Return the report, or raise if a document failed.

        Raises:
            IngestionError: A document failed; ``failures`` has the error of each.
        """
        if not self.failures:
            return self
        first = list(self.failures.items())[:_SHOWN]
        shown = "; ".join(f"{ref!r}: {type(error).__name__}: {error}" for ref, error in first)
        n_more = len(self.failures) - len(first)
        more = f"; and {n_more} more" if n_more else ""
        raise IngestionError(
            f"{len(self.failures)} documents could not be {self._done}, the others were "
            f"({shown}{more})",
            self.failures,
        ) from first[0][1]


@dataclass(frozen=True, slots=True)
class IngestionReport(_Report):
    """The outcome of each document of one call of ``KnowledgeBase.add``.

    Attributes:
        added: Number of new documents.
        updated: Number of documents that replaced an older version.
        unchanged: Number of documents already stored in the same version.
        skipped: Reasons why documents have nothing to store, by id, such as ``no text``; an older
            version is deleted.
        failures: Errors of the other documents, by id; an older version stays.
        n_nodes: Number of nodes written.
        seconds: Duration in seconds.

    Examples:
        >>> print(IngestionReport(added=2, n_nodes=7, seconds=0.25))
        2 added, 0 updated, 0 unchanged; 7 nodes in 0.2 s

    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    skipped: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, Exception] = field(default_factory=dict)
    n_nodes: int = 0
    seconds: float = 0.0

    _done = "added"

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON."""
        return {
            "added": self.added,
            "updated": self.updated,
            "unchanged": self.unchanged,
            "skipped": dict(self.skipped),
            "failures": {
                ref: f"{type(error).__name__}: {error}" for ref, error in self.failures.items()
            },
            "n_nodes": self.n_nodes,
            "seconds": round(self.seconds, 3),
        }

    def __str__(self) -> str:
        counts = [
            f"{self.added} added",
            f"{self.updated} updated",
            f"{self.unchanged} unchanged",
            *([f"{len(self.skipped)} skipped"] if self.skipped else []),
            *([f"{len(self.failures)} failed"] if self.failures else []),
        ]
        return f"{', '.join(counts)}; {self.n_nodes} nodes in {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class CopyReport(_Report):
    """The outcome of each document of a copied knowledge base.

    Attributes:
        copied: Number of documents written.
        unchanged: Number of documents that the target already has in the same version.
        removed: Number of documents removed from the target because the source lacks them.
        only_at_target: Number of such documents that the target still has.
        failures: Errors of the other documents, by id and scope, if any.
        n_nodes: Number of nodes written.
        seconds: Duration in seconds.

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

    _done = "copied"

    def __str__(self) -> str:
        removed = f", {self.removed} removed" if self.removed else ""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        more = f"; {self.only_at_target} only at the target" if self.only_at_target else ""
        return (
            f"{self.copied} copied, {self.unchanged} unchanged{removed}{failed}; "
            f"{self.n_nodes} nodes in {self.seconds:.1f} s{more}"
        )


# Shown after this delay, in seconds: a bar for a shorter call would flicker.
_DELAY_S = 0.5


@contextmanager
def progress(
    items: Iterable[object], *, show: bool, title: str = "Adding documents"
) -> Generator[Callable[[int], object]]:
    """Show a progress bar; yield the function that advances it by a number of documents.

    Without a length of the items, the bar counts up.
    """
    total = len(items) if isinstance(items, Sized) else None
    with tqdm(total=total, desc=title, unit="doc", delay=_DELAY_S, disable=not show) as bar:
        yield bar.update


class Tally:
    """Collects the outcomes of one call."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._counts = dict.fromkeys(WriteOutcome, 0)
        self._skipped: dict[str, str] = {}
        self._failures: dict[str, Exception] = {}
        self._n_nodes = 0
        self._seen: dict[DocumentKey, str] = {}

    def is_new(self, document: SourceDocument) -> bool:
        """Return whether this is the first document with its key; further ones fail."""
        if document.key not in self._seen:
            self._seen[document.key] = document.digest
            return True
        if self._seen[document.key] == document.digest:
            self.unchanged()
            return False
        ref = document.key.ref
        self.failed(
            ref,
            DuplicateNodeError(
                f"document {ref!r} was given twice in one call, with different content; the first "
                "was taken. Give each its own id, or all nodes of a document in a row",
                ref,
            ),
        )
        return False

    def failed(self, ref: str, error: Exception) -> None:
        """Record a document that could not be added."""
        self._failures[ref] = error

    def skipped(self, ref: str, reason: str) -> None:
        """Record a document with nothing to store."""
        self._skipped[ref] = reason

    def unchanged(self) -> None:
        """Record a document that is already stored in this version."""
        self._counts[WriteOutcome.UNCHANGED] += 1

    def stored(self, document: Prepared, outcome: WriteOutcome) -> None:
        """Record a document that was written."""
        self._counts[outcome] += 1
        if outcome is not WriteOutcome.UNCHANGED:
            self._n_nodes += len(document.nodes)

    def merge(self, report: IngestionReport) -> None:
        """Add the report of another process."""
        self._counts[WriteOutcome.ADDED] += report.added
        self._counts[WriteOutcome.UPDATED] += report.updated
        self._counts[WriteOutcome.UNCHANGED] += report.unchanged
        self._skipped.update(report.skipped)
        self._failures.update(report.failures)
        self._n_nodes += report.n_nodes

    def report(self) -> IngestionReport:
        """Return the report."""
        return IngestionReport(
            added=self._counts[WriteOutcome.ADDED],
            updated=self._counts[WriteOutcome.UPDATED],
            unchanged=self._counts[WriteOutcome.UNCHANGED],
            skipped=dict(self._skipped),
            failures=dict(self._failures),
            n_nodes=self._n_nodes,
            seconds=perf_counter() - self._started,
        )
