"""Routes for the services: documents, replies, weekly reports, knowledge."""

import asyncio
from datetime import UTC, date, datetime
from typing import Any, Final, Literal, NoReturn

from fastapi import APIRouter, Depends, Response
from fastapi.responses import HTMLResponse

from llama_retrieval_ext.capabilities.analysis import Finding
from llama_retrieval_ext.capabilities.factory import CapabilityFactory
from llama_retrieval_ext.capabilities.insight import Insight, InsightReport
from llama_retrieval_ext.capabilities.query_engine import GeneratedText
from llama_retrieval_ext.capabilities.rag import RAGAnswer, RAGGenerator
from llama_retrieval_ext.llm.functions import AnyLLM
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import ResultList
from llama_retrieval_ext.serve import requests as sent
from llama_retrieval_ext.serve.guard import RequestContext
from llama_retrieval_ext.serve.http_errors import HttpError, kind_of
from llama_retrieval_ext.serve.service import (
    HIT_EXAMPLE,
    Context,
    Events,
    Service,
    as_json,
    body_scope,
    event_stream,
    events_example,
    json_example,
    query_of,
)
from llama_retrieval_ext.services import (
    DocumentResult,
    KnowledgeService,
    MimicService,
    ReportService,
    SearchService,
)
from llama_retrieval_ext.services.knowledge import RelatedEntity, TimelineEvent
from llama_retrieval_ext.services.report import WeeklyReport, WorkLog

_NO_LLM: Final = "this server has no LLM; start it with --llm-url and --llm-model (in Python llm=)"
_LLM_FAILURES: Final[dict[int | str, dict[str, Any]]] = {  # Any: FastAPI's
    501: {"description": "The server has no LLM."},
    502: {"description": "The LLM fails, or gives no usable answer."},
}
# Example answers, for the documentation.
_CRANE: Final = "Ada Stone checked the Tower Crane at North Quay."
_DOCUMENTS: Final = {
    "documents": [
        DocumentResult(
            *("leave", "Annual leave is 25 days.", 0.0328, "hybrid"),
            {"file_path": "handbook.md", "year": 2025},
        ).to_dict()
    ],
    "degraded": [],
    "hints": [],
}
_REPLY: Final = {
    "text": "Cheers, at ten then!",
    "examples": [{**HIT_EXAMPLE, "node_id": "77aa", "text": "Cheers, works for me!"}],
    "degraded": [],
    "hints": [],
}
_LOG: Final = WorkLog(
    id="0b6f", timestamp=datetime(2026, 5, 6, 9, tzinfo=UTC), text="The crane came two days late."
)
_WORK_LOG: Final = {"user_id": "anna", **_LOG.model_dump(mode="json")}
_REPORT: Final = WeeklyReport(
    user_id="anna",
    start_date=date(2026, 5, 4),
    end_date=date(2026, 5, 10),
    overview="The week went well, but the crane was late [1].",
    sections={"key_tasks": [], "challenges": [Finding(text="It was late.", sources=["0b6f"])]},
    work_logs=[_LOG],
).to_dict()
_ANSWER: Final = {
    "answer": "You have 25 days [1].",
    "is_answered": True,
    "is_supported": True,
    "citations": [{"number": 1, "statement": "You have 25 days [1].", **HIT_EXAMPLE}],
    "problems": [],
    "degraded": [],
    "hints": [],
}
_EVENTS: Final = 'event: partial\ndata: {"answer": "You have"}\n\nevent: result\ndata: {…}\n\n'
_INSIGHT: Final = Insight(
    title="Deliveries are late",
    explanation="Both cranes came after the day that was agreed.",
    evidence=["5e1c", "77aa"],
    confidence=0.8,
)
_INSIGHTS: Final = InsightReport(insights=[_INSIGHT]).model_dump(mode="json")
_RELATED: Final = {
    "entities": [RelatedEntity("North Quay", passages=("5e1c",)).to_dict()],
    "degraded": [],
    "hints": [],
}
_TIMELINE: Final = {
    "events": [
        TimelineEvent(datetime(2026, 5, 4, tzinfo=UTC), _CRANE, "5e1c", "document").to_dict()
    ],
    "degraded": [],
    "hints": [],
}


def service_router(service: Service, *, llm: AnyLLM | None) -> APIRouter:
    """Return the routes over the services; routes that need an LLM answer 501 without one."""
    # Each has the prefix, as logs have the path of a route within its own router.
    router = APIRouter(prefix="/v1/services", tags=["services"])
    # Services need an LLM at construction; without one, a dependency refuses these routes.
    refused = [Depends(_refuse)] if llm is None else []
    writing = APIRouter(
        prefix=router.prefix, tags=["services"], dependencies=refused, responses=_LLM_FAILURES
    )
    factory = CapabilityFactory.of(service.kb, llm=_refuse if llm is None else llm)
    _add_search(router, service, SearchService.of(factory))
    _add_mimic(writing, MimicService.of(factory))
    _add_reports(router, writing, service, ReportService.of(factory))
    knowledge = KnowledgeService.of(factory)
    _add_found(router, service, knowledge)
    _add_written(writing, service, knowledge)
    both = APIRouter()
    both.include_router(router)
    both.include_router(writing)
    return both


async def _refuse() -> NoReturn:
    raise HttpError(501, "no_llm", _NO_LLM)


def _add_search(router: APIRouter, service: Service, searches: SearchService) -> None:
    @router.post("/documents", responses={200: json_example(_DOCUMENTS)})
    async def documents(body: sent.DocumentsRequest, context: Context) -> Response:
        """Return whole documents for a query, each once, by their best passage."""
        top_k = service.top_k(body)
        query = query_of(body, context)
        search = searches.asearch(query, top_k, scope=query.scope)
        results = await asyncio.wait_for(search, context.left_s)
        context.notes |= {"documents": len(results)}
        return as_json({"documents": [d.to_dict() for d in results], **_missing(results)})


def _add_mimic(router: APIRouter, mimic: MimicService) -> None:
    @router.post("/mimic", responses={200: json_example(_REPLY)})
    async def reply(body: sent.MimicRequest, context: Context) -> Response:
        """Return a reply in a person's style, from texts of that person."""
        query = query_of(body, context)
        text = await mimic.agenerate_response(
            query,
            body.temperature,
            body.use_history,
            user_id=body.user_id,
            conversation_id=body.conversation_id,
            scope=query.scope,
        )
        read = [hit.to_dict() for hit in text.hits]
        return as_json({"text": text.text, "examples": read, **_missing(text)})


def _add_reports(
    router: APIRouter, writing: APIRouter, service: Service, reports: ReportService
) -> None:
    @router.post("/work-logs", responses={200: json_example(_WORK_LOG)})
    async def work_log(body: sent.WorkLogRequest, context: Context) -> Response:
        """Store a work log for weekly reports; the key must have the right to write."""
        scope = body_scope(context, body.scope)
        log = await service.write(
            context,
            lambda: reports.add_work_log(
                body.user_id, body.text, timestamp=body.timestamp, scope=scope
            ),
        )
        facts = {"id": log.id, "user_id": body.user_id, "text": log.text}
        return as_json({**facts, "timestamp": log.timestamp.isoformat()})

    formats = {"application/json": {"example": _REPORT}, "text/markdown": {}}

    @writing.post("/weekly-report", responses={200: {"content": {**formats, "text/html": {}}}})
    async def weekly_report(
        body: sent.WeeklyReportRequest,
        context: Context,
        view: Literal["json", "markdown", "html"] = "json",
    ) -> Response:
        """Return the weekly report of a user, from work logs, as JSON, Markdown or HTML."""
        report = await reports.agenerate_weekly_report(
            body.user_id,
            body.start_date,
            body.end_date,
            body.style,
            scope=body_scope(context, body.scope),
            timeout_s=context.left_s,
        )
        report = report.model_copy(
            update={"degraded": [kind_of(reason) for reason in report.degraded]}
        )
        context.notes |= {"work_logs": len(report.work_logs), "degraded": len(report.degraded)}
        if view == "html":
            return HTMLResponse(report.to_html())
        if view == "markdown":
            return Response(report.to_markdown(), media_type="text/markdown")
        return as_json(report.to_dict())


def _add_found(router: APIRouter, service: Service, knowledge: KnowledgeService) -> None:
    @router.post("/related", responses={200: json_example(_RELATED)})
    async def related(body: sent.RelatedRequest, context: Context) -> Response:
        """Return the entities related to a subject, nearest first."""
        top_k = service.top_k(body)
        query = query_of(body, context)
        entities = await knowledge.arelated(
            query, top_k=top_k, max_hops=body.max_hops, scope=query.scope
        )
        return as_json(
            {"entities": [entity.to_dict() for entity in entities], **_missing(entities)}
        )

    @router.post("/timeline", responses={200: json_example(_TIMELINE)})
    async def timeline(body: sent.TimelineRequest, context: Context) -> Response:
        """Return dated passages and memories about a topic, oldest first."""
        top_k = service.top_k(body)
        query = query_of(body, context)
        events = await knowledge.atimeline(
            query, start=body.start, end=body.end, top_k=top_k, scope=query.scope
        )
        return as_json({"events": [event.to_dict() for event in events], **_missing(events)})


def _add_written(router: APIRouter, service: Service, knowledge: KnowledgeService) -> None:
    @router.post("/ask", responses={200: json_example(_ANSWER)})
    async def ask(body: sent.AskRequest, context: Context) -> Response:
        """Return the answer to a question, with citations that are checked."""
        query = query_of(body, context)
        return as_json(_answer(await knowledge.aask(query, scope=query.scope), context))

    described = "Events `partial` with the answer so far; then `result` or `error`."

    @router.post("/ask/stream", responses={200: events_example(described, _EVENTS)})
    async def ask_stream(body: sent.AskRequest, context: Context) -> Response:
        """Return the answer as it is written, as server-sent events, and last with citations."""
        events = _written(knowledge.rag_generator, query_of(body, context), context)
        return event_stream(events, context)

    @router.post("/insights", responses={200: json_example(_INSIGHTS)})
    async def insights(body: sent.InsightsRequest, context: Context) -> Response:
        """Return insights about a topic, each with the ids of its passages."""
        top_k = service.top_k(body)
        query = query_of(body, context)
        report = await knowledge.ainsights(query, top_k=top_k, scope=query.scope)
        facts = report.model_dump(mode="json")
        return as_json({**facts, "degraded": [kind_of(reason) for reason in report.degraded]})


async def _written(rag: RAGGenerator, query: Query, context: RequestContext) -> Events:
    answer = None
    async for answer in rag.astream(query):
        yield "partial", {"answer": answer.text}
    if answer is not None:
        yield "result", _answer(answer, context)


def _answer(answer: RAGAnswer, context: RequestContext) -> dict[str, object]:
    context.notes |= {"citations": len(answer.citations), "degraded": len(answer.degraded)}
    return {**answer.to_dict(), **_missing(answer)}


def _missing(answer: GeneratedText | ResultList[Any]) -> dict[str, object]:
    """Return what is missing, without the messages of errors."""
    degraded = [{"where": part.where, "reason": kind_of(part.reason)} for part in answer.degraded]
    return {"degraded": degraded, "hints": list(answer.hints)}
