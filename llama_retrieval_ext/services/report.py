"""`ReportService`: weekly reports from work logs, as data, Markdown and HTML."""

import re
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, Self

from llama_index.core.schema import TextNode
from pydantic import BaseModel, Field

from llama_retrieval_ext.capabilities.analysis import DataAnalyzer, Finding
from llama_retrieval_ext.capabilities.factory import CapabilityFactory
from llama_retrieval_ext.capabilities.memory import MemoryManager
from llama_retrieval_ext.capabilities.memory_storage import Memory
from llama_retrieval_ext.capabilities.output_texts import OutputTexts, check_language
from llama_retrieval_ext.capabilities.rag import RAGGenerator
from llama_retrieval_ext.checks import checked_call, declared_arguments, of_type
from llama_retrieval_ext.errors import ConfigurationError, GenerationError
from llama_retrieval_ext.execution.drivers import asynchronous, blocking, called, within
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.services.scoped import USER_KEY, ScopedService, by_metadata
from llama_retrieval_ext.text.normalization import language_of

# Start of a heading, list, quotation, table or link target.
_MONTH: Final = timedelta(days=28)
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
        language: Language of headings and notes, as in `OutputTexts`.
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
    language: str = "en"
    overview: str = ""
    sections: dict[str, list[Finding]] = Field(default_factory=dict)
    comparison: str = ""
    work_logs: list[WorkLog] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)
    degraded: list[str] = Field(default_factory=list)

    @property
    def texts(self) -> OutputTexts:
        """Headings and notes in the language of the report."""
        return OutputTexts.of(self.language)

    @property
    def title(self) -> str:
        """Headline of the report."""
        return self.texts.weekly_report.format(
            user_id=self.user_id, start=self.start_date, end=self.end_date
        )

    def numbered(self) -> Iterator[tuple[str, list[tuple[int, Finding]]]]:
        """Yield the title of each section with its findings, numbered across all sections."""
        number = 0
        for name, findings in self.sections.items():
            yield self.texts.section(name), list(enumerate(findings, start=number + 1))
            number += len(findings)

    def days_of(self, finding: Finding) -> str:
        """Return the days of the work logs behind a finding."""
        days = {log.id: log.timestamp.date().isoformat() for log in self.work_logs}
        return ", ".join(sorted({days[id_] for id_ in finding.sources if id_ in days}))

    def notes(self) -> list[str]:
        """Return the unsupported statements and the missing parts, as sentences."""
        return [
            *(self.texts.unsupported.format(statement=problem) for problem in self.problems),
            *(self.texts.incomplete.format(part=part) for part in self.degraded),
        ]

    def __repr__(self) -> str:
        count = sum(map(len, self.sections.values()))
        return f"WeeklyReport({self.title!r}, {count} findings, {len(self.work_logs)} work logs)"

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON."""
        return self.model_dump(mode="json")

    def to_markdown(self) -> str:
        """Return the report as Markdown; markup in logs and answers is escaped."""
        texts = self.texts
        lines = [f"# {_inline(self.title)}", "", _inline(self.overview)]
        for title, findings in self.numbered():
            lines += ["", f"## {_inline(title)}", ""]
            lines += [
                f"{number}. {_inline(finding.text)} ({self.days_of(finding)})"
                for number, finding in findings
            ] or [texts.none]
        if self.comparison:
            lines += ["", f"## {texts.comparison}", "", _inline(self.comparison)]
        if self.work_logs:
            lines += ["", f"## {texts.work_logs}", ""]
        lines += [f"- {log.timestamp.date()}: {_inline(log.text)}" for log in self.work_logs]
        if notes := self.notes():
            lines += ["", f"## {texts.notes}", "", *(f"- {_inline(note)}" for note in notes)]
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


WORK_LOG: Final = "work_log"
_OVERVIEW: Final = (
    "What was done in the week from {start} to {end}? Write the overview of a weekly report from "
    "the findings in the passages, in three to six sentences, in the language of the passages and "
    "in a {style} style."
)


@declared_arguments
@dataclass(frozen=True)
class ReportService(ScopedService):
    """Weekly reports from work logs, which are memories of the type ``work_log``.

    The logs of the time range are analysed, and an overview is written from the findings alone,
    with checked citations. If the analysis fails, the error is raised. If only the overview fails,
    the report has the summary of the analysis instead and is marked degraded.

    Args:
        memory_manager: Stores the work logs.
        analyzer: Analyses them; its metrics are the sections of a report.
        rag_generator: Writes the overview.
        timezone: The time zone of the first and last day.
        scope: As for `ScopedService`.
        require_scope: As for `ScopedService`.

    Raises:
        ConfigurationError: An argument is of another type.

    Examples:
        >>> from llama_index.core import MockEmbedding
        >>> from llama_retrieval_ext import CapabilityFactory, KnowledgeBase
        >>> from llama_retrieval_ext.testing import ScriptedLLM
        >>> said = '{"findings": [{"metric": "key_tasks", "text": "Pumps.", "sources": [1]}]}'
        >>> llm = ScriptedLLM([said, "The pump was checked [1]."])
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     reports = ReportService.of(CapabilityFactory.of(kb, llm=llm))
        ...     monday = datetime(2026, 5, 4, 9, tzinfo=UTC)
        ...     _ = reports.add_work_log("anna", "Checked the pump.", timestamp=monday)
        ...     week = date(2026, 5, 4), date(2026, 5, 10)
        ...     report = reports.generate_weekly_report("anna", *week)
        >>> report.overview, report.sections["key_tasks"][0].text
        ('The pump was checked [1].', 'Pumps.')

    """

    memory_manager: MemoryManager
    analyzer: DataAnalyzer
    rag_generator: RAGGenerator
    _: KW_ONLY
    timezone: tzinfo = UTC

    @classmethod
    @checked_call
    def of(
        cls, factory: CapabilityFactory, *, timezone: tzinfo = UTC, scope: Scope | None = None
    ) -> Self:
        """Return the service over a factory's parts; `ConfigurationError` if one is missing."""
        return cls(
            factory.create_memory_manager(),
            factory.create_data_analyzer(with_retriever=True),
            factory.create_rag_generator(),
            timezone=timezone,
            scope=scope,
            require_scope=factory.parts.requires_scope,
        )

    @blocking
    def add_work_log(
        self,
        user_id: str,
        text: str,
        *,
        timestamp: datetime | None = None,
        scope: Scope | None = None,
    ) -> Plan[Memory]:
        """Store a work log; it is durable when this returns.

        Args:
            user_id: The user.
            text: The work that was done.
            timestamp: The time, with a time zone; None for now.
            scope: Narrows the service's scope.

        Raises:
            ConfigurationError: ``user_id`` or ``text`` is empty, or the time has no zone.
            IngestionError: It could not be stored.
        """
        by_metadata({USER_KEY: user_id})  # raises if it is empty
        return called(
            self.memory_manager.remember,
            self.memory_manager.aremember,
            text,
            memory_type=WORK_LOG,
            timestamp=timestamp,
            metadata={USER_KEY: user_id},
            scope=self._within(scope),
        )

    aadd_work_log = asynchronous(add_work_log)

    @blocking
    def generate_weekly_report(  # noqa: PLR0913 - what a report is made of
        self,
        user_id: str,
        start_date: date,
        end_date: date,
        style: str = "professional",
        *,
        language: str | None = None,
        scope: Scope | None = None,
        timeout_s: float | None = None,
    ) -> Plan[WeeklyReport]:
        """Return the report of a week or other time range; it is empty without work logs.

        Args:
            user_id: The user of the work logs.
            start_date: The first day; a datetime counts as its day.
            end_date: The last day, inclusive.
            style: Style of the overview, such as ``professional``.
            language: Language of headings and notes, as in `OutputTexts`; None for that of the
                work logs, or of ``style`` if there are none.
            scope: Narrows the service's scope.
            timeout_s: Seconds for everything.

        Raises:
            GenerationError: The model returned no usable analysis.
            DeadlineExceededError: ``timeout_s`` ran out.
            ConfigurationError: A date is invalid, the range ends before it begins, or ``user_id``
                or ``style`` is empty.
        """
        empty, narrowed = self._empty(user_id, start_date, end_date, style), self._within(scope)
        plan = self._plan(empty, check_language(language), narrowed)
        return within("weekly report", plan, timeout_s)

    agenerate_weekly_report = asynchronous(generate_weekly_report)

    def _empty(self, user_id: str, start: date, end: date, style: str) -> WeeklyReport:
        """Check the arguments, and return them as a report without content."""
        start, end = self._day(start, "start_date"), self._day(end, "end_date")
        if end < start:
            raise ConfigurationError(f"the time ends before it begins: {start} to {end}")
        by_metadata({USER_KEY: user_id})
        if not isinstance(style, str) or not style.strip():
            raise ConfigurationError(f"style must be a word such as 'professional', got {style!r}")
        return WeeklyReport(user_id=user_id, start_date=start, end_date=end, style=style)

    def _day(self, day: date, what: str) -> date:
        of_type(day, date, what, instead="write date(2026, 5, 4), for instance")
        if not isinstance(day, datetime):
            return day
        return (day if day.tzinfo is None else day.astimezone(self.timezone)).date()

    def _plan(
        self, report: WeeklyReport, language: str | None, scope: Scope | None
    ) -> Plan[WeeklyReport]:
        logs = yield from self._logs(report, scope)
        texts = [log.text for log in logs]
        if not logs and language is None:
            before = report.model_copy(update={"start_date": report.start_date - _MONTH})
            texts = [log.text for log in (yield from self._logs(before, scope))]
            names = (report.user_id, report.style)
            texts = texts or [name for name in names if language_of(name) != language_of()]
        report = report.model_copy(update={"language": language or language_of(*texts)})
        if not logs:
            nothing = report.texts.no_work_logs.format(start=report.start_date, end=report.end_date)
            return report.model_copy(update={"overview": nothing})
        nodes = [TextNode(id_=log.id, text=f"{log.timestamp.date()}: {log.text}") for log in logs]
        analyzer = self.analyzer
        of_material = scope if analyzer.retriever is not None else None
        analysis = yield from called(analyzer.analyze, analyzer.aanalyze, nodes, scope=of_material)
        update = {
            "overview": analysis.summary,
            "work_logs": logs,
            "sections": analysis.metrics,
            "comparison": analysis.comparison,
            "degraded": analysis.degraded,
        }
        return (yield from self._with_overview(report.model_copy(update=update)))

    def _logs(self, report: WeeklyReport, scope: Scope | None) -> Plan[list[WorkLog]]:
        start = datetime.combine(report.start_date, time.min, self.timezone)
        end = datetime.combine(report.end_date, time.max, self.timezone)
        memories = yield from called(
            self.memory_manager.retrieve_by_timerange,
            self.memory_manager.aretrieve_by_timerange,
            start,
            end,
            filters=by_metadata({USER_KEY: report.user_id}),
            memory_type=WORK_LOG,
            scope=scope,
        )
        return [
            WorkLog(
                id=memory.id, timestamp=memory.timestamp.astimezone(self.timezone), text=memory.text
            )
            for memory in memories
        ]

    def _with_overview(self, report: WeeklyReport) -> Plan[WeeklyReport]:
        """Return the report with an overview in its style; without one if the model fails."""
        passages = [
            TextNode(id_=f"finding-{number}", text=finding.text)
            for _, findings in report.numbered()
            for number, finding in findings
        ]
        if not passages:
            return report
        task = _OVERVIEW.format(start=report.start_date, end=report.end_date, style=report.style)
        rag = self.rag_generator
        try:
            answer = yield from called(
                rag.generate, rag.agenerate, task, passages, language=report.language
            )
        except GenerationError as error:
            return _without_style(report, str(error))
        if not answer.is_answered:
            return _without_style(report, report.texts.nothing_to_write)
        missing = [f"overview: {part.reason}" for part in answer.degraded]
        update = {
            "overview": answer.text,
            "problems": list(answer.problems),
            "degraded": [*report.degraded, *missing],
        }
        return report.model_copy(update=update)


def _without_style(report: WeeklyReport, reason: str) -> WeeklyReport:
    note = report.texts.no_overview.format(reason=reason)
    return report.model_copy(update={"degraded": [*report.degraded, note]})
