"""Views of reports about documents, and of weekly reports."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import RenderableType
from rich.text import Text

from llama_retrieval_ext.display.html import Markup, page, table, tag, tile

if TYPE_CHECKING:
    from llama_retrieval_ext.services.report import WeeklyReport

# Limit of listed documents.
_SHOWN: Final = 50
# Labels of the counts in reports.
_COUNTS: Final = {
    "added": "added",
    "updated": "updated",
    "changed": "changed",
    "moved": "moved",
    "deleted": "deleted",
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
    """Return a report as HTML: the summary, and documents with details."""
    stories = _stories(report)
    more = len(stories) - _SHOWN
    counts = [
        tile(f"{count if isinstance(count, int) else len(count):,}", words)
        for name, words in _COUNTS.items()
        if (count := getattr(report, name, None)) is not None
    ]
    return page(
        tag("h3", str(report)),
        tag("div", *counts, class_="tiles"),
        *([table(("document", "outcome"), stories[:_SHOWN])] if stories else []),
        *([tag("p", f"… {more} more", class_="dim")] if more > 0 else []),
    )


def report_console(report: Report) -> RenderableType:
    """Return a report for a rich console: the summary, and documents with details."""
    return Text("\n".join([str(report), *(f"  {ref}: {story}" for ref, story in _stories(report))]))


def _stories(report: Report) -> list[tuple[str, str]]:
    skipped: Mapping[str, str] = getattr(report, "skipped", {})
    left_out: Mapping[str, str] = getattr(report, "left_out", {})
    return [
        *((ref, f"skipped: {why}") for ref, why in skipped.items()),
        *((ref, f"left out: {why}") for ref, why in left_out.items()),
        *(
            (ref, f"failed: {type(error).__name__}: {error}")
            for ref, error in report.failures.items()
        ),
    ]


def weekly_report_html(report: "WeeklyReport") -> Markup:
    """Return a weekly report as a fragment of HTML."""
    parts = [tag("h1", report.title), tag("p", report.overview)]
    for title, findings in report.numbered():
        items = [
            tag("li", finding.text, " ", tag("small", report.days_of(finding)), value=number)
            for number, finding in findings
        ]
        parts += [tag("h2", title), tag("ol", *items) if items else tag("p", report.texts.none)]
    if report.comparison:
        parts += [tag("h2", report.texts.comparison), tag("p", report.comparison)]
    logs = [f"{log.timestamp.date()}: {log.text}" for log in report.work_logs]
    for title, lines in ((report.texts.work_logs, logs), (report.texts.notes, report.notes())):
        if lines:
            parts += [tag("h2", title), tag("ul", *(tag("li", line) for line in lines))]
    return page(*parts)


def weekly_report_page(report: "WeeklyReport") -> str:
    """Return a weekly report as an HTML document."""
    return (
        '<!doctype html>\n<html><head><meta charset="utf-8">'
        f"<title>{escape(report.title)}</title></head>\n<body>{weekly_report_html(report)}</body></html>\n"
    )
