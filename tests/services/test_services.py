"""The services end to end on the embedded engine: what models are sent, and what comes back."""

import asyncio
import json
import re
from collections.abc import Callable
from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

from llama_retrieval_ext.capabilities import CapabilityFactory, documents_only
from llama_retrieval_ext.errors import (
    ConfigurationError,
    DeadlineExceededError,
    GenerationError,
    ScopeError,
    ScopeRequiredError,
)
from llama_retrieval_ext.graph import open_graph
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.services import (
    KnowledgeService,
    MimicService,
    ReportService,
    SearchService,
    WeeklyReport,
)
from llama_retrieval_ext.testing import ScriptedLLM
from tests.services.conftest import ACME, BETA, DOCUMENTS, PUMP, SECRET

WEEK = date(2026, 5, 4), date(2026, 5, 10)


def factory(kb: KnowledgeBase, answers: object = (), **window: int) -> CapabilityFactory:
    return CapabilityFactory.of(kb, llm=ScriptedLLM(answers, **window))  # type: ignore[arg-type]


def prompts_of(service_factory: CapabilityFactory) -> list[str]:
    llm = service_factory.parts.llm
    assert isinstance(llm, ScriptedLLM)
    return llm.prompts


# Search


def test_search_gives_whole_documents_each_once(kb: KnowledgeBase) -> None:
    service = SearchService.of(factory(kb))
    assert len(kb.get("pump", scope=ACME)) > 2
    best, *others = service.search("valve of the pump", 4, scope=ACME)
    assert (best.doc_id, best.content) == ("pump", f"{PUMP} (acme)")
    assert best.metadata["date"] == "2026-02-01"
    assert best.source
    assert len({each.doc_id for each in (best, *others)}) == 4
    scores = [best.score, *(each.score for each in others)]
    assert scores == sorted(scores, reverse=True)
    assert asyncio.run(service.asearch("valve of the pump", 4, scope=ACME)) == [best, *others]


def test_search_looks_further_where_one_document_fills_the_ranking(kb: KnowledgeBase) -> None:
    service = SearchService(kb.retriever("vector"), kb, scope=BETA)
    found = service.search("valve pump fitter", len(DOCUMENTS), documents_only())
    assert sorted(each.doc_id for each in found) == sorted(DOCUMENTS)
    assert all(each.content.endswith("(beta)") for each in found)


def test_search_leaves_out_what_was_deleted_meanwhile(kb: KnowledgeBase) -> None:
    class Gone:
        def get(self, source_or_id: str, /, *, scope: Scope | None = None) -> list[object]:
            return [] if source_or_id == "leave" else kb.get(source_or_id, scope=scope)  # type: ignore[return-value]

    service = SearchService(kb.retriever("keyword"), Gone(), scope=ACME)  # type: ignore[arg-type]
    assert "leave" not in [each.doc_id for each in service.search("annual leave")]


# Mimic


def test_mimic_imitates_the_person_in_the_conversation(kb: KnowledgeBase) -> None:
    made = factory(kb, ["Cheers!"] * 4)
    service = MimicService.of(made)
    reply = service.generate_response("Is leave granted?", user_id="ann", scope=ACME)
    assert reply.text == "Cheers!"
    assert {hit.node.ref_doc_id for hit in reply.examples} == {"chat-1", "chat-2"}
    service.generate_response("Is leave granted?", conversation_id="c1", scope=BETA)
    asyncio.run(service.agenerate_response("Is leave granted?", use_history=False, scope=ACME))
    first, second, third = prompts_of(made)
    assert "Cheers mate" in first
    assert "Dear" not in first
    assert "Dear" in second
    assert "Yo, leave" not in second
    assert "beta" not in first
    assert "acme" not in second
    assert "Cheers mate" not in third
    with pytest.raises(ConfigurationError, match="use_history=False uses none"):
        service.generate_response("x", use_history=False, user_id="ann", scope=ACME)


# Report


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


def test_a_report_compares_with_what_the_scope_can_see(kb: KnowledgeBase) -> None:
    def compared(prompt: str) -> str:
        return "Less than before [1]." if "Compare these" in prompt else analyst(prompt)

    made = factory(kb, compared)
    service = ReportService(
        made.create_memory_manager(),
        made.create_data_analyzer(with_retriever=True),
        made.create_rag_generator(),
        scope=BETA,
    )
    report = service.generate_weekly_report("ann", *WEEK, "cheerful")
    assert report.comparison == "Less than before [1]."
    assert "\n## Compared with earlier material\n" in report.to_markdown()
    assert not any("acme" in prompt for prompt in prompts_of(made))


@pytest.mark.parametrize("user_id", [None, "", " ", 7])
def test_nobody_is_not_everybody(reports: Callable[..., ReportService], user_id: str) -> None:
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


FINDINGS = '{"findings": [{"metric": "key_tasks", "text": "Valves.", "sources": [1]}]}'


@pytest.mark.parametrize(
    "answers",
    [[RuntimeError("503")], ["no JSON"] * 2, [""], ['{"findings": [{"metric": "key_']],
    ids=["error", "malformed", "empty", "cut"],
)
def test_a_failing_analysis_is_an_error_and_no_report(
    reports: Callable[..., ReportService], answers: list[object]
) -> None:
    with pytest.raises(GenerationError, match="analysis"):
        reports(answers).generate_weekly_report("ann", *WEEK, scope=ACME)


@pytest.mark.parametrize("last", [RuntimeError("503"), "", "NOT_IN_PASSAGES"], ids=str)
def test_a_failing_overview_is_the_summary_and_named(
    reports: Callable[..., ReportService], last: object
) -> None:
    said = json.dumps({**json.loads(FINDINGS), "summary": "Valves were closed."})
    report = reports([said, last]).generate_weekly_report("ann", *WEEK, scope=ACME)
    assert report.overview == "Valves were closed."
    assert report.sections["key_tasks"][0].text == "Valves."
    assert "overview" in report.degraded[0]
    assert "Incomplete: overview" in report.to_markdown()


def test_an_invented_figure_in_the_overview_is_marked(
    reports: Callable[..., ReportService],
) -> None:
    service = reports([FINDINGS, "99 valves were closed [1]."])
    report = service.generate_weekly_report("ann", *WEEK, scope=ACME)
    assert "99" in report.problems[0]
    assert "Not supported by the work logs" in report.to_html()


def test_a_report_keeps_its_time_limit(reports: Callable[..., ReportService]) -> None:
    service = reports([(5.0, FINDINGS)])
    with pytest.raises(DeadlineExceededError):
        service.generate_weekly_report("ann", *WEEK, scope=ACME, timeout_s=0.1)


# Knowledge


def test_ask_cites_within_the_scope_and_the_token_budget(kb: KnowledgeBase) -> None:
    def reader(prompt: str) -> str:
        number = re.search(r"\[(\d)\]\nAnnual leave is", prompt)
        assert number is not None
        return f"Annual leave is 25 days [{number[1]}]."

    made = factory(kb, reader, context_window=700, num_output=100)  # it checks each prompt
    service = KnowledgeService.of(made)
    answers = {
        ACME: service.ask("How much annual leave?", scope=ACME),
        BETA: asyncio.run(service.aask("How much annual leave?", scope=BETA)),
    }
    for (scope, answer), prompt in zip(answers.items(), prompts_of(made), strict=True):
        assert [each.hit.node.ref_doc_id for each in answer.citations] == ["leave"]
        assert SECRET[scope] not in prompt


def test_insights_rest_on_passages_of_the_scope(kb: KnowledgeBase) -> None:
    said = '{"insights": [{"title": "Cranes", "evidence": [1], "confidence": 0.9}]}'
    made = factory(kb, [said, "nonsense", "nonsense"])
    service = KnowledgeService.of(made)
    report = asyncio.run(service.ainsights("tower crane", top_k=2, scope=BETA))
    known = {node.node_id for name in DOCUMENTS for node in kb.get(name, scope=BETA)}
    assert set(report.insights[0].evidence) <= known
    assert "acme" not in prompts_of(made)[0]
    with pytest.raises(GenerationError, match="insights"):
        service.insights("tower crane", scope=BETA)
    assert service.insights("x", scope=Scope("nobody")).insights == []


def test_related_entities_without_a_graph_stand_in_the_same_passages(kb: KnowledgeBase) -> None:
    service = KnowledgeService.of(factory(kb))
    related = service.related_entities("Tower Crane", top_k=2, scope=ACME)
    assert [each.name for each in related] == ["Ada Stone", "North Quay"]
    assert related[0].passages == (kb.get("site", scope=ACME)[0].node_id,)


def test_related_entities_of_a_graph_are_those_of_the_scope(kb: KnowledgeBase) -> None:
    graph = open_graph("graph::memory:")
    for tenant, other in (("acme", "Gale"), ("beta", "Flood")):
        own = {"tenant_id": tenant}
        nodes = [GraphNode(name, "Thing", name, own) for name in ("Tower Crane", other)]
        graph.upsert(nodes, [Edge.of("Tower Crane", "FEARS", other, own)])
    made = CapabilityFactory.of(kb, llm=ScriptedLLM([]), graph_store=graph)
    service = KnowledgeService.of(made)
    (related,) = service.related_entities("What does the tower crane fear?", scope=BETA)
    assert (related.name, related.hops) == ("Flood", 1)
    assert related.path == "Tower Crane -FEARS-> Flood"
    assert asyncio.run(service.arelated_entities("tower crane", scope=ACME))[0].name == "Gale"
    graph.close()


def test_a_timeline_has_dated_documents_and_memories(kb: KnowledgeBase) -> None:
    service = KnowledgeService.of(factory(kb), scope=ACME)
    memories = service.memory_manager
    assert memories is not None
    moment = datetime(2026, 1, 20, tzinfo=ZoneInfo("UTC"))
    memory = memories.remember("Asked for annual leave", timestamp=moment, scope=ACME)
    events = service.timeline("annual leave", start=date(2026, 1, 1), end=date(2026, 1, 31))
    assert [(each.text, each.source) for each in events] == [
        ("Annual leave is 25 days a year. (acme)", "document"),
        ("Asked for annual leave", "memory"),
    ]
    everything = asyncio.run(service.atimeline("annual leave"))
    assert [each.timestamp for each in everything] == sorted(e.timestamp for e in everything)
    assert events[0] in everything
    memories.forget(memory.id, scope=ACME)
    with pytest.raises(ConfigurationError, match="ends before"):
        service.timeline("x", start=date(2026, 2, 1), end=date(2026, 1, 1))


# All


def test_each_service_requires_a_scope_where_the_knowledge_base_does(kb: KnowledgeBase) -> None:
    made = factory(kb)
    knowledge = KnowledgeService.of(made)
    calls: list[Callable[[], object]] = [
        lambda: SearchService.of(made).search("x"),
        lambda: MimicService.of(made).generate_response("x", use_history=False),
        lambda: ReportService.of(made).generate_weekly_report("ann", *WEEK),
        lambda: knowledge.ask("x"),
        lambda: knowledge.insights("x"),
        lambda: knowledge.related_entities("x"),
        lambda: knowledge.timeline("x"),
    ]
    for call in calls:
        with pytest.raises(ScopeRequiredError):
            call()
    with pytest.raises(ScopeError, match="nothing in common"):
        SearchService.of(made, scope=ACME).search(Query("x"), scope=BETA)
