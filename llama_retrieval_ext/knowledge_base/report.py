"""Reports of adding and copying documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from llama_retrieval_ext.errors import IngestionError
from llama_retrieval_ext.lazy import Viewed
from llama_retrieval_ext.wording import counted

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
            f"{counted(len(self.failures), 'document')} could not be {self._done}, the others were "
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
            version is deleted. And those why `read_documents` left out files, by path.
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
        return f"{', '.join(counts)}; {counted(self.n_nodes, 'node')} in {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class SyncReport(_Report):
    """The sources that ``KnowledgeBase.sync`` found, by what was done; a dry run has an equal one.

    A source is the path of a file, or the id of a document without one.

    Attributes:
        added: New sources.
        changed: Sources with another content or metadata.
        moved: New paths by old ones, of sources with the same content.
        deleted: Sources that are gone.
        unchanged: The other sources.
        left_out: Reasons why sources were not read; their documents stay. A source without text is
            among them, and its documents are deleted.
        failures: Errors of documents that could not be stored, by id; an older version stays.
        n_nodes: Number of nodes written.
        seconds: Duration in seconds.
        is_dry_run: Whether nothing was written.
        refusal: Of a dry run: why a sync that writes would raise `SyncRefusedError`; else empty.

    Examples:
        >>> print(SyncReport(added=("a.md", "b.md"), deleted=("c.md",), n_nodes=7, seconds=0.25))
        2 added, 0 changed, 0 moved, 1 deleted, 0 unchanged; 7 nodes in 0.2 s

    """

    added: Sequence[str] = ()
    changed: Sequence[str] = ()
    moved: Mapping[str, str] = field(default_factory=dict)
    deleted: Sequence[str] = ()
    unchanged: Sequence[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, Exception] = field(default_factory=dict, compare=False)
    n_nodes: int = field(default=0, compare=False)
    seconds: float = field(default=0.0, compare=False)
    is_dry_run: bool = field(default=False, compare=False)
    refusal: str = field(default="", compare=False)

    _done = "synced"

    def __str__(self) -> str:
        names = ("added", "changed", "moved", "deleted", "unchanged")
        counts = [
            *(f"{len(getattr(self, name))} {name}" for name in names),
            *([f"{len(self.left_out)} left out"] if self.left_out else []),
            *([f"{len(self.failures)} failed"] if self.failures else []),
        ]
        done = "nothing written" if self.is_dry_run else f"{counted(self.n_nodes, 'node')}"
        refused = f". A real run would be refused: {self.refusal}" if self.refusal else ""
        return f"{', '.join(counts)}; {done} in {self.seconds:.1f} s{refused}"


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
            f"{counted(self.n_nodes, 'node')} in {self.seconds:.1f} s{more}"
        )
