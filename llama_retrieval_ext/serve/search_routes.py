"""Routes for search, streamed search, explanations and fields."""

import asyncio
from copy import copy
from dataclasses import replace
from typing import Final, Literal, TypeVar

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from llama_retrieval_ext.display.explanation import explanation_html
from llama_retrieval_ext.filters import SCOPE_KEYS
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult
from llama_retrieval_ext.serve.guard import RequestContext
from llama_retrieval_ext.serve.http_errors import HttpError, kind_of
from llama_retrieval_ext.serve.requests import (
    FacetsRequest,
    FeedbackRequest,
    SearchManyRequest,
    SearchRequest,
)
from llama_retrieval_ext.serve.service import (
    HIT_EXAMPLE,
    Context,
    Events,
    QueryScope,
    Service,
    as_json,
    body_scope,
    event_stream,
    events_example,
    json_example,
    query_of,
)
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.trace import Trace

R = TypeVar("R", bound=SearchResult)

_EXAMPLE: Final = {
    "query": "How many days of annual leave?",
    "hits": [
        {
            **HIT_EXAMPLE,
            "contributions": [
                {"leg": "vector", "rank": 1, "score": 0.71, "weight": 0.5, "share": 0.0164}
            ],
        }
    ],
    "degraded": [],
    "hints": [],
    "corrected": None,
    "cursor": None,
}
_FACETS: Final = {
    "facets": {
        "law": {
            "field": "law",
            "values": [{"value": "Safety", "count": 12}],
            "ranges": [],
            "min": None,
            "max": None,
            "distinct": 1,
        }
    },
    "total": 12,
    "counts": "documents",
    "approximate": False,
    "reasons": [],
    "hints": [],
}
_EVENTS: Final = 'event: partial\ndata: {"query": …, "hits": […]}\n\nevent: result\ndata: {…}\n\n'


def search_router(service: Service) -> APIRouter:
    """Return the routes over a knowledge base."""
    router = APIRouter(prefix="/v1", tags=["search"])

    @router.post("/search", responses={200: json_example(_EXAMPLE)})
    async def search(body: SearchRequest, context: Context) -> Response:
        """Return the best hits for a query."""
        result = await service.kb.asearch(
            query_of(body, context),
            body.mode,
            top_k=service.top_k(body),
            collapse=None if body.per_source is None else Collapse(body.per_source),
            sort=body.sort,
            cursor=body.cursor,
        )
        _note(context, result)
        return as_json(_answer(result))

    @router.post("/search-many", responses={200: json_example({"results": [_EXAMPLE]})})
    async def search_many(body: SearchManyRequest, context: Context) -> Response:
        """Return the best hits for each of several queries; one that fails is degraded."""
        most = service.limits.max_queries
        if len(body.queries) > most:
            raise HttpError(422, "too_many", f"this server takes at most {most} queries at once")
        prepared = [_prepare(service, search, context) for search in body.searches()]
        retriever, queries = prepared[0][0], [query for _, query in prepared]
        results = await asyncio.wait_for(retriever.asearch_many(queries), context.left_s)
        context.notes |= {"queries": len(queries), "hits": sum(map(len, results))}
        return as_json({"results": [*map(_answer, results)]})

    @router.post(
        "/stream",
        responses={
            200: events_example(
                "Events `partial`, as the legs answer; then `result` or `error`.", _EVENTS
            )
        },
    )
    async def stream(body: SearchRequest, context: Context) -> Response:
        """Return the ranking after each leg, as server-sent events, and last the whole answer."""
        retriever, query = _prepare(service, body, context)
        return event_stream(_events(retriever, query, context), context)

    @router.post(
        "/explain", responses={200: {"content": {"application/json": {}, "text/html": {}}}}
    )
    async def explain(
        body: SearchRequest, context: Context, view: Literal["json", "html"] = "json"
    ) -> Response:
        """Return the hits with a trace of the search and an explanation of each rank."""
        retriever, query = _prepare(service, body, context)
        explanation = _redacted(await retriever.aexplain(query))
        _note(context, explanation)
        if view == "html":
            headers = {"X-Query-Id": str(explanation.details.get("query_id", ""))}
            return HTMLResponse(explanation_html(explanation), headers=headers)
        return as_json(explanation.to_dict())

    _add_feedback(router, service)
    _add_fields(router, service)
    return router


def _add_feedback(router: APIRouter, service: Service) -> None:
    @router.post("/feedback", status_code=204)
    async def feedback(body: FeedbackRequest, context: Context) -> None:
        """Record that somebody opened a hit, or whether the answer was good, in the query log."""
        scope, log = body_scope(context, body.scope), service.kb.log
        if log is None:
            raise HttpError(501, "no_log", "this server keeps no log of queries")

        def record() -> None:
            if body.hit is not None:
                log.clicked(body.query_id, body.hit, scope=scope)
            if body.good is not None:
                log.answered(body.query_id, good=body.good, scope=scope)

        await service.read(context, record)


def _add_fields(router: APIRouter, service: Service) -> None:
    @router.post("/facets", responses={200: json_example(_FACETS)})
    async def facets(body: FacetsRequest, context: Context) -> Response:
        """Return the values of fields, with the number of documents that have them."""
        counting = service.kb.afacets(
            body.fields,
            body.query,
            body.mode,
            first=None if body.first is None else min(body.first, service.limits.max_top_k),
            filters=None if body.filters is None else body.filters.to_filters(),
            scope=body_scope(context, body.scope),
            top=body.top,
            nodes=body.nodes,
            as_of=body.as_of,
            known_at=body.known_at,
        )
        return as_json((await asyncio.wait_for(counting, context.left_s)).to_dict())

    @router.get("/fields", responses={200: json_example({"fields": {"year": {"int": 12}}})})
    async def fields(context: Context, scope: QueryScope) -> Response:
        """Return the metadata fields to filter by, with the types of a sample of their values."""
        types = await service.read(context, lambda: service.kb.metadata_fields(scope=scope))
        return as_json({"fields": {k: v for k, v in types.items() if k not in SCOPE_KEYS}})


def _prepare(
    service: Service, body: SearchRequest, context: RequestContext
) -> tuple[Retriever, Query]:
    """Return the retriever and the query of a request, or raise if it is invalid."""
    top_k = service.top_k(body)
    query = query_of(body, context, top_k=top_k)
    collapse = None if body.per_source is None else Collapse(body.per_source)
    return service.kb.retriever(body.mode, top_k=top_k, collapse=collapse), query


def _note(context: RequestContext, result: SearchResult) -> None:
    """Add the numbers of a result to the log entry."""
    context.notes |= {"hits": len(result.hits), "degraded": len(result.degraded)}


def _answer(result: SearchResult) -> dict[str, object]:
    """Return the redacted result as JSON, without the trace, which ``explain`` returns."""
    answer = _redacted(replace(result, trace=None)).to_dict()
    return {name: value for name, value in answer.items() if name != "trace"}


def _redacted(result: R) -> R:
    """Return the result with error kinds instead of messages, which may name servers."""
    return replace(
        result,
        degraded=tuple(replace(part, reason=kind_of(part.reason)) for part in result.degraded),
        trace=None if result.trace is None else _redacted_trace(result.trace),
    )


def _redacted_trace(trace: Trace) -> Trace:
    shown = copy(trace)
    shown.error = trace.error and kind_of(trace.error)
    shown.children = [*map(_redacted_trace, trace.children)]
    return shown


async def _events(retriever: Retriever, query: Query, context: RequestContext) -> Events:
    async for result in retriever.astream(query):
        # Only the final answer has a trace.
        if result.trace is None:
            hits = [hit.to_dict() for hit in result.hits]
            yield "partial", {"query": result.query, "hits": hits}
        else:
            _note(context, result)
            yield "result", _answer(result)
