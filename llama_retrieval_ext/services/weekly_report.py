"""`WeeklyReport`: a user's work of a week, as data, Markdown and HTML."""

import re
from collections.abc import Iterator
from datetime import date, datetime

from pydantic import BaseModel, Field

from llama_retrieval_ext.capabilities.analysis import Finding

# Start of a heading, list, quotation, table or link target.
_BLOCK = re.compile(r"^([#>+\-*=|~]|\d+[.)]|\[)")


class WorkLog(BaseModel):
    """Entry of a work log.

    Attributes:
        id: Its id, as in findings.
        timestamp: Its time, in the time zone of the report.
        text: The work that was done.
    """

    id: str
    timestamp: datetime
    text: str


class WeeklyReport(BaseModel):
    """Report on the work of a user in a week.

    Attributes:
        user_id: The user.
        start_date: The first day.
        end_date: The last day.
        style: The style of the overview.
        overview: Overview in a few sentences; ``[2]`` cites the second finding.
        sections: The findings by metric, such as ``key_tasks``; each names its work logs.
        comparison: Comparison with earlier material; empty if there was none.
        work_logs: The work logs, oldest first.
        problems: Statements of the overview that the findings do not support.
        degraded: Missing parts and the reasons.
    """

    user_id: str
    start_date: date
    end_date: date
    style: str = "professional"
    overview: str = ""
    sections: dict[str, list[Finding]] = Field(default_factory=dict)
    comparison: str = ""
    work_logs: list[WorkLog] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)
    degraded: list[str] = Field(default_factory=list)

    @property
    def title(self) -> str:
        """Headline of the report."""
        return f"Weekly report: {self.user_id}, {self.start_date} to {self.end_date}"

    def numbered(self) -> Iterator[tuple[str, list[tuple[int, Finding]]]]:
        """Yield the title of each section with its findings, numbered across all sections."""
        number = 0
        for name, findings in self.sections.items():
            titled = name.replace("_", " ").strip()
            yield titled[:1].upper() + titled[1:], list(enumerate(findings, start=number + 1))
            number += len(findings)

    def days_of(self, finding: Finding) -> str:
        """Return the days of the work logs behind a finding."""
        days = {log.id: log.timestamp.date().isoformat() for log in self.work_logs}
        return ", ".join(sorted({days[id_] for id_ in finding.sources if id_ in days}))

    def notes(self) -> list[str]:
        """Return the unsupported statements and the missing parts, as sentences."""
        return [
            *(f"Not supported by the work logs: {each}" for each in self.problems),
            *(f"Incomplete: {each}" for each in self.degraded),
        ]

    def __repr__(self) -> str:
        count = sum(map(len, self.sections.values()))
        return f"WeeklyReport({self.title!r}, {count} findings, {len(self.work_logs)} work logs)"

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON."""
        return self.model_dump(mode="json")

    def to_markdown(self) -> str:
        """Return the report as Markdown; markup in logs and answers is escaped."""
        lines = [f"# {_inline(self.title)}", "", _inline(self.overview)]
        for title, findings in self.numbered():
            lines += ["", f"## {_inline(title)}", ""]
            lines += [
                f"{number}. {_inline(finding.text)} ({self.days_of(finding)})"
                for number, finding in findings
            ] or ["None."]
        if self.comparison:
            lines += ["", "## Compared with earlier material", "", _inline(self.comparison)]
        if self.work_logs:
            lines += ["", "## Work logs", ""]
        lines += [f"- {log.timestamp.date()}: {_inline(log.text)}" for log in self.work_logs]
        if notes := self.notes():
            lines += ["", "## Notes", "", *(f"- {_inline(note)}" for note in notes)]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """Return the report as a self-contained HTML page; all text in it is escaped."""
        from llama_retrieval_ext.display.reports import weekly_report_page  # noqa: PLC0415 - a view

        return weekly_report_page(self)

    def _repr_html_(self) -> str:
        from llama_retrieval_ext.display.reports import weekly_report_html  # noqa: PLC0415 - a view

        return weekly_report_html(self)


def _inline(text: str) -> str:
    """Return a text on one line of Markdown, without HTML, links and block markup."""
    flat = " ".join(text.split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace("](", "]\\(")
    return _BLOCK.sub(r"\\\1", flat)
