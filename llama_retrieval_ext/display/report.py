"""Weekly reports as HTML."""

from html import escape
from typing import TYPE_CHECKING

from llama_retrieval_ext.display.html import Markup, page, tag

if TYPE_CHECKING:
    from llama_retrieval_ext.services.report import WeeklyReport


def report_html(report: "WeeklyReport") -> Markup:
    """Return a weekly report as a fragment of HTML."""
    parts = [tag("h1", report.title), tag("p", report.overview)]
    for title, findings in report.numbered():
        items = [
            tag("li", each.text, " ", tag("small", report.days_of(each)), value=number)
            for number, each in findings
        ]
        parts += [tag("h2", title), tag("ol", *items) if items else tag("p", "None.")]
    if report.comparison:
        parts += [tag("h2", "Compared with earlier material"), tag("p", report.comparison)]
    logs = [f"{log.timestamp.date()}: {log.text}" for log in report.work_logs]
    for title, lines in (("Work logs", logs), ("Notes", report.notes())):
        if lines:
            parts += [tag("h2", title), tag("ul", *(tag("li", line) for line in lines))]
    return page(*parts)


def report_page(report: "WeeklyReport") -> str:
    """Return a weekly report as an HTML document."""
    return (
        '<!doctype html>\n<html><head><meta charset="utf-8">'
        f"<title>{escape(report.title)}</title></head>\n<body>{report_html(report)}</body></html>\n"
    )
