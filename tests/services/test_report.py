"""Weekly reports from work logs."""
# ruff: noqa: RUF001 - Chinese punctuation on purpose

import asyncio
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from llama_retrieval_ext.errors import ConfigurationError, DeadlineExceededError, GenerationError
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.services import ReportService
from llama_retrieval_ext.services.report import WeeklyReport
from tests.cases import cases
from tests.services.conftest import ACME, WEEK, factory


def analyst(prompt: str) -> str:
    """Reads work logs and writes overviews as a model should."""
    if "overview of a weekly report" in prompt:
        assert "in a cheerful style" in prompt
        return "Three valves were closed, 3 in all [1]. The crane was late [2]."
    logs = re.findall(r"^\[(\d+)\] (\d{4}-\d\d-\d\d): (.*)$", prompt, re.MULTILINE)
    found = [
        {
            "metric": "challenges" if "crane" in text else "key_tasks",
            "text": text,
            "sources": [int(number)],
        }
        for number, _, text in logs
    ]
    return json.dumps({"findings": found, "summary": "Pumps and cranes."})


@pytest.fixture
def reports(kb: KnowledgeBase) -> Callable[..., ReportService]:
    def made(answers: object = analyst, **options: object) -> ReportService:
        # So little room that each prompt has to be fitted into it.
        own = factory(kb, answers, context_window=1_200, num_output=300)
        return ReportService.of(own, **options)  # type: ignore[arg-type]

    return made


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_weekly_report_from_the_logs_of_one_user_and_week(
    reports: Callable[..., ReportService], way: str
) -> None:
    service = reports()
    if way == "sync":
        report = service.generate_weekly_report("ann", *WEEK, "cheerful", scope=ACME)
    else:
        report = asyncio.run(service.agenerate_weekly_report("ann", *WEEK, "cheerful", scope=ACME))
    texts = [log.text for log in report.work_logs]
    assert texts == ["Closed 3 valves of the pump. acme", "The crane was late <b>again</b>. acme"]
    assert list(report.sections) == ["key_tasks", "achievements", "challenges"]
    assert report.sections["challenges"][0].sources == [report.work_logs[1].id]
    assert report.overview.startswith("Three valves")
    assert (report.problems, report.degraded) == ([], [])
    for prompt in service.analyzer.llm.prompts:  # type: ignore[attr-defined]
        assert not re.search("beta|Sunday|Monday|travel", prompt)
    assert WeeklyReport.model_validate_json(json.dumps(report.to_dict())) == report


@pytest.mark.parametrize("user_id", ["", 7])
def test_a_report_without_a_user_is_refused(
    reports: Callable[..., ReportService], user_id: str
) -> None:
    service = reports([])
    with pytest.raises(ConfigurationError, match="user_id must be"):
        service.generate_weekly_report(user_id, *WEEK, scope=ACME)
    with pytest.raises(ConfigurationError, match="user_id must be"):
        service.add_work_log(user_id, "x", scope=ACME)


def test_a_report_is_exported_as_markdown_and_html(reports: Callable[..., ReportService]) -> None:
    report = reports().generate_weekly_report("ann", *WEEK, "cheerful", scope=ACME)
    report.overview = "# [x](http://y) <script>\n- z"
    markdown = report.to_markdown()
    assert markdown.startswith("# Weekly report: ann, 2026-05-04 to 2026-05-10\n")
    assert "\n## Key tasks\n\n1. Closed 3 valves of the pump. acme (2026-05-04)\n" in markdown
    assert "\n## Challenges\n\n2. The crane was late &lt;b>again&lt;/b>. acme" in markdown
    assert "\n\\# [x]\\(http://y) &lt;script> - z\n" in markdown
    page = report.to_html()
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert "late &lt;b&gt;again&lt;/b&gt;" in page
    assert '<li value="2">' in page
    assert report._repr_html_() in page


def test_a_report_without_logs_calls_no_model(reports: Callable[..., ReportService]) -> None:
    service = reports([])
    report = service.generate_weekly_report("nobody", *WEEK, scope=ACME)
    assert report.overview == "There are no work logs from 2026-05-04 to 2026-05-10."
    assert (report.work_logs, report.sections) == ([], {})


def test_days_are_those_of_the_time_zone(reports: Callable[..., ReportService]) -> None:
    service = reports([], timezone=ZoneInfo("Asia/Shanghai"))
    day = datetime(2026, 5, 4, 7, tzinfo=ZoneInfo("Asia/Shanghai"))  # 3 May 23:00 UTC
    with pytest.raises(GenerationError):  # there is a log: Sunday evening in UTC
        service.generate_weekly_report("ann", day, day, scope=ACME)
    assert service.generate_weekly_report("bob", day, day, scope=ACME).work_logs == []


COMPARED = "As before."
FINDINGS = '{"findings": [{"metric": "key_tasks", "text": "Valves.", "sources": [1]}]}'


@cases("answers", [[RuntimeError("503")], ["no JSON"] * 2, ['{"findings": [{"metric": "key_']])
def test_a_failing_analysis_is_an_error_and_no_report(
    reports: Callable[..., ReportService], answers: list[object]
) -> None:
    with pytest.raises(GenerationError, match="analysis"):
        reports(answers).generate_weekly_report("ann", *WEEK, scope=ACME)


@pytest.mark.parametrize("last", [RuntimeError("503"), "NOT_IN_PASSAGES"], ids=str)
def test_a_failing_overview_is_the_summary_and_named(
    reports: Callable[..., ReportService], last: object
) -> None:
    said = json.dumps({**json.loads(FINDINGS), "summary": "Valves were closed."})
    report = reports([said, COMPARED, last]).generate_weekly_report("ann", *WEEK, scope=ACME)
    assert report.overview == "Valves were closed."
    assert report.sections["key_tasks"][0].text == "Valves."
    assert "overview" in report.degraded[0]
    assert "Incomplete: overview" in report.to_markdown()


def test_an_invented_figure_in_the_overview_is_marked(
    reports: Callable[..., ReportService],
) -> None:
    service = reports([FINDINGS, COMPARED, "99 valves were closed [1]."])
    report = service.generate_weekly_report("ann", *WEEK, scope=ACME)
    assert "99" in report.problems[0]
    assert "Not supported by the work logs" in report.to_html()


def test_a_report_keeps_its_time_limit(reports: Callable[..., ReportService]) -> None:
    service = reports([(60.0, FINDINGS)])
    with pytest.raises(DeadlineExceededError):
        service.generate_weekly_report("ann", *WEEK, scope=ACME, timeout_s=0.1)


CHINESE = json.dumps(
    {
        "findings": [{"metric": "key_tasks", "text": "检查了塔吊。", "sources": [1]}],
        "summary": "检查塔吊。",
    },
    ensure_ascii=False,
)


def test_a_report_on_chinese_logs_is_chinese_throughout(
    reports: Callable[..., ReportService],
) -> None:
    service = reports([CHINESE, COMPARED, "检查了9台塔吊 [1]。"])
    monday = datetime(2026, 6, 1, tzinfo=UTC)
    log = service.add_work_log("wang", "今天检查了塔吊。", timestamp=monday, scope=ACME)
    report = service.generate_weekly_report("wang", monday, monday, scope=ACME)
    service.memory_manager.forget(log.id, scope=ACME)
    markdown = report.to_markdown()
    assert report.language == "zh"
    for text in ("# 周报：wang，2026-06-01 至 2026-06-01", "## 重点工作", "## 工作成果", "无。"):
        assert text in markdown
    assert "工作日志不支持：“检查了9台塔吊”：[1] 中没有 9" in markdown
    assert not re.search("Weekly|Key tasks|None|Work logs|Notes|Not supported", report.to_html())
    assert WeeklyReport.model_validate_json(json.dumps(report.to_dict())) == report


@cases(
    ("user", "style", "language", "earlier", "is_chinese"),
    [
        ("nobody", "正式", None, "", True),
        ("nobody", "professional", "zh", "", True),
        ("李四", "professional", None, "", True),
        ("wang", "professional", None, "今天检查了塔吊。", True),
        ("李四", "professional", None, "The crane was inspected.", False),
        ("李四", "professional", "en", "今天检查了塔吊。", False),
        ("nobody", "professional", None, "", False),
    ],
)
def test_an_empty_week_is_reported_in_the_language_of_the_call_or_earlier_logs_or_the_name(
    reports: Callable[..., ReportService],
    user: str,
    style: str,
    language: str | None,
    earlier: str,
    is_chinese: bool,
) -> None:
    service = reports([])
    if earlier:
        before = datetime(2026, 4, 20, tzinfo=UTC)
        log = service.add_work_log(user, earlier, timestamp=before, scope=ACME)
    report = service.generate_weekly_report(user, *WEEK, style, language=language, scope=ACME)
    if earlier:
        service.memory_manager.forget(log.id, scope=ACME)
    english = "There are no work logs from 2026-05-04 to 2026-05-10."
    assert report.overview == ("2026-05-04 至 2026-05-10 没有工作日志。" if is_chinese else english)
    assert report.title.startswith("周报" if is_chinese else "Weekly report")
