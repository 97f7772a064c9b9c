"""Views of knowledge bases and of reports about documents: HTML and rich console."""

from collections.abc import Mapping
from typing import Final, Protocol

from rich.console import RenderableType
from rich.text import Text

from llama_retrieval_ext.display.html import page, table, tag, tile

# Limit of listed documents.
_SHOWN: Final = 50
# Labels of the counts in reports.
_COUNTS: Final = {
    "added": "added",
    "updated": "updated",
    "copied": "copied",
    "unchanged": "unchanged",
    "removed": "removed",
    "n_nodes": "nodes written",
}


class Report(Protocol):
    """Report about documents; its string is the summary."""

    @property
    def failures(self) -> Mapping[str, Exception]:
        """Errors by document."""
        ...


def report_html(report: Report) -> str:
    """Return a report as HTML: the summary, and documents with details.

    Args:
        report: Report of adding or copying.
    """
    stories = _stories(report)
    more = len(stories) - _SHOWN
    counts = [
        tile(f"{getattr(report, name):,}", words)
        for name, words in _COUNTS.items()
        if hasattr(report, name)
    ]
    return page(
        tag("h3", str(report)),
        tag("div", *counts, class_="tiles"),
        *([table(("document", "outcome"), stories[:_SHOWN])] if stories else []),
        *([tag("p", f"… {more} more", class_="dim")] if more > 0 else []),
    )


def report_console(report: Report) -> RenderableType:
    """Return a report for a rich console: the summary, and documents with details.

    Args:
        report: Report of adding or copying.
    """
    return Text("\n".join([str(report), *(f"  {ref}: {story}" for ref, story in _stories(report))]))


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """Return facts about a value as an HTML table of two columns.

    Args:
        title: Subject of the facts.
        facts: Facts by name.
    """
    rows = [(name, str(fact)) for name, fact in facts.items()]
    return page(tag("div", table((title, ""), rows), class_="card"))


def _stories(report: Report) -> list[tuple[str, str]]:
    skipped: Mapping[str, str] = getattr(report, "skipped", {})
    return [
        *((ref, f"skipped: {why}") for ref, why in skipped.items()),
        *(
            (ref, f"failed: {type(error).__name__}: {error}")
            for ref, error in report.failures.items()
        ),
    ]
