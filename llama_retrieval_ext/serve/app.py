"""The HTTP application: its routes, its documentation and its errors."""

import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, Final

from fastapi import FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

import llama_retrieval_ext as ext
from llama_retrieval_ext.checks import MOST_PROBLEMS, problem
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.llm.functions import AnyLLM
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.serve.document_routes import document_router, ranking_router
from llama_retrieval_ext.serve.guard import DEADLINE_HEADER, Guard, ServeLimits
from llama_retrieval_ext.serve.http_errors import HttpError
from llama_retrieval_ext.serve.keys import ApiKeys
from llama_retrieval_ext.serve.search_routes import search_router
from llama_retrieval_ext.serve.service import Service, as_json, json_example
from llama_retrieval_ext.serve.service_routes import service_router

OPEN_PATHS: Final = frozenset({"/", "/health", "/ready", "/openapi.json"})
# Errors of routing, by status.
_REFUSALS: Final = {
    400: ("bad_request", "the body cannot be read; send JSON in UTF-8"),
    404: ("not_found", "there is no such path; /openapi.json lists all"),
    405: ("method_not_allowed", "this path does not take that method; see the header Allow"),
}
# Errors that every route of the API may answer.
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": text, **json_example({"error": {"type": kind, "message": text}})}
    for status, kind, text in (
        (400, "bad_request", "The request is not valid HTTP."),
        (401, "missing_key", "The API key is missing or unknown."),
        (403, "out_of_scope", "The key does not reach what the request names."),
        (404, "not_found", "There is nothing of this name in the scope of the key."),
        (413, "too_large", "The body is too large."),
        (503, "unavailable", "Too many requests wait, or the store does not answer."),
        (504, "deadline_exceeded", "The deadline ran out."),
    )
}
_DESCRIPTION: Final = (
    f"Send an API key as `Authorization: Bearer KEY`, and, if you like, `{DEADLINE_HEADER}`, the "
    "seconds in which you need the answer. Errors are "
    '`{"error": {"type": "…", "message": "…"}}`: 401 for a missing or unknown key, 403 for what it '
    "does not reach, 413 and 422 for a request that is too large or wrong, 501 for what needs an "
    "LLM where there is none, 502 when the LLM fails, 503 with `Retry-After` when too many wait, "
    "504 when the deadline ran out."
)


def build_app(
    kb: KnowledgeBase,
    *,
    keys: ApiKeys | None,
    scope: Scope | None,
    limits: ServeLimits,
    llm: AnyLLM | None,
) -> FastAPI:
    """Return the application; see `create_app`."""
    service = Service(kb, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await service.stop()

    app = FastAPI(
        title="llama-retrieval",
        version=ext.__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from another host
        redoc_url=None,
    )
    app.add_middleware(Guard, limits=limits, keys=keys, scope=scope, open_paths=OPEN_PATHS)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    # For the documentation only; the guard checks the key.
    key = Security(HTTPBearer(auto_error=False, description="An API key."))
    routers = (
        search_router(service),
        document_router(service),
        ranking_router(service),
        service_router(service, llm=llm),
    )
    for router in routers:
        app.include_router(router, dependencies=[key], responses=_ERRORS)
    _add_open_routes(app, service)
    return app


def _add_open_routes(app: FastAPI, service: Service) -> None:
    # Search with explanations; one file, nothing from another host.
    text = files("llama_retrieval_ext.serve").joinpath("page.html").read_text(encoding="utf-8")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; "
            "connect-src 'self'; img-src data:; frame-src 'self'; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'"
        )
        headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
        return HTMLResponse(text.replace("{{nonce}}", nonce), headers=headers)

    @app.get("/health", tags=["server"])
    async def health() -> Response:
        """Return whether the process lives."""
        return as_json({"status": "ok"})

    @app.get("/ready", tags=["server"], responses={503: {"description": "Not ready."}})
    async def ready() -> Response:
        """Return whether the store answers, and the server is not about to stop."""
        is_ready = await service.is_ready()
        status = {"status": "ready" if is_ready else "not ready"}
        return as_json(status, status=200 if is_ready else 503)


async def _invalid(request: Request, error: Exception) -> Response:
    """Return the error for a request that does not fit its schema, without its content."""
    errors: Sequence[Any] = (  # Any: pydantic's
        error.errors() if isinstance(error, RequestValidationError) else ()
    )
    body = getattr(request.scope.get("route"), "body_field", None)
    model = getattr(getattr(body, "field_info", None), "annotation", None)
    fields = getattr(model, "model_fields", {})
    shown = "; ".join(_problem(invalid, fields) for invalid in errors[:MOST_PROBLEMS])
    return _answer(HttpError(422, "bad_request", shown))


def _problem(error: Mapping[str, Any], fields: Collection[str]) -> str:
    """Return one problem of a request, in the words of HTTP."""
    is_in_body = len(error["loc"]) == 2  # noqa: PLR2004 - body and field
    match error["type"]:
        case "json_invalid":
            return "the body is not valid JSON"
        case "model_attributes_type" if len(error["loc"]) == 1:
            return (
                "the body is no JSON object; send one with the header Content-Type: "
                "application/json"
            )
    return problem(error, fields if is_in_body else ())


async def _refused(_: Request, error: Exception) -> Response:
    """Return the error for an unknown path or method, or a body that is not JSON."""
    if not isinstance(error, HTTPException):  # for the type: it is registered for these alone
        raise error
    kind, message = _REFUSALS.get(error.status_code, ("bad_request", error.detail))
    answer = _answer(HttpError(error.status_code, kind, message))
    answer.headers.update(error.headers or {})
    return answer


def _answer(failure: HttpError) -> Response:
    return as_json(failure.to_dict(), status=failure.status)
