"""Views of reports about documents, of facets, and of weekly reports."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from llama_retrieval_ext.display.html import Markup, bars, page, table, tag, tile
from llama_retrieval_ext.knowledge_base.facets import FacetRange, Facets, FacetValue
from llama_retrieval_ext.wording import counted, on_one_line

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


def facets_text(facets: Facets) -> str:
    """Return facets as plain text: a line for each field, and one for its ranges."""
    return "\n".join([_summary(facets), *_lines(facets)])


def facets_console(facets: Facets) -> RenderableType:
    """Return facets for a rich console."""
    return Group(Text(_summary(facets)), *map(Text, _lines(facets)))


def facets_html(facets: Facets) -> str:
    """Return facets as HTML: a table for each field, with bars by count."""
    parts = [tag("h3", _summary(facets))]
    parts += [tag("p", note) for note in _notes(facets)]
    for facet in facets.values():
        more = facet.distinct - len(facet.values)
        shown: list[FacetValue | FacetRange] = [*facet.values, *facet.ranges]
        most = max((part.count for part in shown), default=1)
        rows = [(name_of(part), str(part.count), bars([(0, part.count / most)])) for part in shown]
        left = [tag("p", f"and {more:,} more values", class_="dim")] if more else []
        parts += [tag("h4", facet.field), table(("", facets.counts, ""), rows), *left]
    return page(*parts)


def name_of(part: FacetValue | FacetRange) -> str:
    """Return a value, or a range in words."""
    if isinstance(part, FacetValue):
        return on_one_line(part.value)
    if part.low is None or part.high is None:
        return f"below {part.high}" if part.low is None else f"from {part.low}"
    return f"{part.low} to below {part.high}"


def _summary(facets: Facets) -> str:
    noun = "document" if facets.counts == "documents" else "passage"
    about = ", approximate" if facets.approximate else ""
    return f"Facets of {counted(facets.total, noun)}{about}"


def _notes(facets: Facets) -> list[str]:
    reasons = [f"approximate: {reason}" for reason in facets.reasons]
    return [*reasons, *(f"hint: {hint}" for hint in facets.hints)]


def _lines(facets: Facets) -> Iterator[str]:
    for note in _notes(facets):
        yield f"  {note}"
    for facet in facets.values():
        for parts in (facet.values, facet.ranges):
            listed = ", ".join(f"{name_of(part)} {part.count}" for part in parts)
            more = facet.distinct - len(parts) if parts is facet.values else 0
            if parts:
                yield f"  {facet.field}: {listed}{f', and {more:,} more' if more else ''}"
