"""Routes for documents: add, list, get, share, delete; and for ranking rules."""

from dataclasses import asdict
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from llama_index.core import Document

from llama_retrieval_ext.hits import passage_to_dict
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.scope import without_allowed
from llama_retrieval_ext.serve.http_errors import HttpError, http_error_of
from llama_retrieval_ext.serve.requests import AddRequest, ShareRequest
from llama_retrieval_ext.serve.service import (
    Context,
    OwnerScope,
    QueryScope,
    Service,
    as_json,
    body_scope,
    json_example,
)
from llama_retrieval_ext.stages.ranking import Ranking

_PAGE = 100
_MAX_PAGE = 1000
_REPORT: Final = {
    "added": 1,
    "updated": 0,
    "unchanged": 0,
    "skipped": {},
    "failures": {},
    "n_nodes": 1,
    "seconds": 0.02,
}
_DOCUMENT: Final = {
    "document_id": "leave",
    "source": "handbook.md",
    "tenant_id": "acme",
    "kb_id": "handbook",
    "n_nodes": 1,
}
_RANKING: Final = {
    "boosts": [{"weight": 0.1, "number": "votes"}],
    "pins": [{"document": "leave", "query": "annual leave"}],
}
_RANKING_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"example": _RANKING} for kind in ("application/json", "application/yaml")
        },
    }
}
_PASSAGES: Final = {
    "document_id": "leave",
    "passages": [
        {
            "node_id": "5e1c",
            "document_id": "leave",
            "text": "Annual leave is 25 days.",
            "metadata": {"file_path": "handbook.md", "year": 2025},
        }
    ],
}


def document_router(service: Service) -> APIRouter:
    """Return the routes over a knowledge base."""
    router = APIRouter(prefix="/v1/documents", tags=["documents"])
    kb = service.kb

    @router.post("", responses={200: json_example(_REPORT)})
    async def add(body: AddRequest, context: Context) -> Response:
        """Add documents, or replace them; the answer counts them and names those that failed."""
        most = service.limits.max_documents
        if len(body.documents) > most:
            raise HttpError(422, "too_many", f"this server takes at most {most} documents at once")
        scope = body_scope(context, body.scope, to_add=True)
        documents = [
            Document(id_=document.id, text=document.text, metadata=dict(document.metadata))
            for document in body.documents
        ]
        # Of two documents of one id, the first is added.
        allowed = {document.id: document.allowed for document in reversed(body.documents)}
        report = await service.write(
            context,
            lambda: kb.add(
                documents,
                scope=scope,
                allowed=lambda document: allowed[document.node_id],
                validity=body.validity,
                show_progress=False,
            ),
        )
        context.notes |= {"documents": len(documents), "failures": len(report.failures)}
        failures = {id_: http_error_of(error).message for id_, error in report.failures.items()}
        return as_json({**report.to_dict(), "failures": failures})

    @router.get("", responses={200: json_example({"total": 1, "documents": [_DOCUMENT]})})
    async def list_documents(
        context: Context,
        scope: QueryScope,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = _PAGE,
    ) -> Response:
        """List the documents that the key can see, by id."""
        documents = await service.read(context, lambda: kb.documents(scope=scope))
        page = documents[offset : offset + limit]
        listed = [without_allowed(asdict(document)) for document in page]  # not who may see it
        return as_json({"total": len(documents), "documents": listed})

    @router.get("/{document_id:path}", responses={200: json_example(_PASSAGES)})
    async def get(document_id: str, context: Context, scope: QueryScope) -> Response:
        """Return the passages of a document, or of all documents of a source, in their order."""
        nodes = await service.read(context, lambda: kb.get(document_id, scope=scope))
        if not nodes:
            raise _not_found()
        return as_json({"document_id": document_id, "passages": [*map(passage_to_dict, nodes)]})

    @router.delete("/{document_id:path}", responses={200: json_example({"deleted": 1})})
    async def delete(document_id: str, context: Context, scope: QueryScope) -> Response:
        """Delete a document, or all documents of a source."""
        deleted = await service.write(context, lambda: kb.delete(document_id, scope=scope))
        if not deleted:
            raise _not_found()
        return as_json({"deleted": deleted})

    _add_share(router, service)
    return router


def ranking_router(service: Service) -> APIRouter:
    """Return the routes for ranking rules."""
    router = APIRouter(prefix="/v1/ranking", tags=["documents"])
    kb = service.kb

    @router.get("", responses={200: json_example(_RANKING)})
    async def get(context: Context, scope: OwnerScope) -> Response:
        """Return the ranking rules that are set for this scope."""
        rules = await service.read(context, lambda: kb.ranking(scope=scope))
        return as_json(rules.to_dict())

    @router.put("", responses={200: json_example(_RANKING)}, openapi_extra=_RANKING_BODY)
    async def put(request: Request, context: Context, scope: OwnerScope) -> Response:
        """Replace the ranking rules of this scope by those in the body, YAML or JSON.

        `{}` removes them.
        """
        text = (await request.body()).decode(errors="replace")
        rules = Ranking.from_yaml(text, file="the body")
        await service.write(context, lambda: kb.set_ranking(rules, scope=scope))
        return as_json(rules.to_dict())

    return router


def _add_share(router: APIRouter, service: Service) -> None:
    @router.patch("/{document_id:path}", responses={200: json_example({"shared": 1})})
    async def share(document_id: str, body: ShareRequest, context: Context) -> Response:
        """Change who may see a document, or all documents of a source."""
        scope = body_scope(context, body.scope)

        def change(kb: KnowledgeBase) -> int:
            is_there = bool(kb.get(document_id, scope=scope))
            return kb.share(document_id, allowed=body.allowed, scope=scope) if is_there else 0

        shared = await service.write(context, lambda: change(service.kb))
        if not shared:
            raise _not_found()
        return as_json({"shared": shared})


def _not_found() -> HttpError:
    return HttpError(404, "not_found", "there is no such document in the scope of this key")
