"""Counts what becomes of documents while they are added."""

from collections.abc import Iterable
from time import perf_counter
from typing import TypeVar

from llama_retrieval_ext.errors import DuplicateNodeError
from llama_retrieval_ext.ingest.documents import DocumentKey, Given, Prepared
from llama_retrieval_ext.ingest.journal import Outcome
from llama_retrieval_ext.ingest.report import IngestionReport

T = TypeVar("T")


class Tally:
    """The report in the making."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._counts = dict.fromkeys(Outcome, 0)
        self._skipped: dict[str, str] = {}
        self._failures: dict[str, Exception] = {}
        self._n_nodes = 0
        self._seen: dict[DocumentKey, str] = {}

    def is_new(self, document: Given) -> bool:
        """Whether this is the first document of its key; another with the same key fails."""
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

    def passed(self, keys: Iterable[DocumentKey], results: Iterable[T | Exception]) -> list[T]:
        """The results that are none of them errors; the errors are noted."""
        passed: list[T] = []
        for key, result in zip(keys, results, strict=True):
            if isinstance(result, Exception):
                self.failed(key.ref, result)
            else:
                passed.append(result)
        return passed

    def failed(self, ref: str, error: Exception) -> None:
        """Note a document that could not be added."""
        self._failures[ref] = error

    def skipped(self, ref: str, reason: str) -> None:
        """Note a document with nothing to store."""
        self._skipped[ref] = reason

    def unchanged(self) -> None:
        """Note a document that is there already."""
        self._counts[Outcome.UNCHANGED] += 1

    def stored(self, document: Prepared, outcome: Outcome) -> None:
        """Note a document that is there now."""
        self._counts[outcome] += 1
        if outcome is not Outcome.UNCHANGED:
            self._n_nodes += len(document.nodes)

    def report(self) -> IngestionReport:
        """What came of all of them."""
        return IngestionReport(
            added=self._counts[Outcome.ADDED],
            updated=self._counts[Outcome.UPDATED],
            unchanged=self._counts[Outcome.UNCHANGED],
            skipped=dict(self._skipped),
            failures=dict(self._failures),
            n_nodes=self._n_nodes,
            seconds=perf_counter() - self._started,
        )
