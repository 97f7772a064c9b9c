"""MCP tools that search and read a knowledge base."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Final, Literal, ParamSpec, TypeAlias

from llama_index.core.vector_stores.types import MetadataFilters
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations
from pydantic import Field

from llama_retrieval_ext.ingest.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY, Query, Scope
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.serve.guard import ServeLimits, log
from llama_retrieval_ext.serve.http_errors import http_error_of, raised_at
from llama_retrieval_ext.serve.requests import Comparison

P = ParamSpec("P")
Facts: TypeAlias = dict[str, Any]  # Any: tools return JSON

_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_TOP_K: Final = 8
_PASSAGES: Final = 20
_MAX_PASSAGES: Final = 100
_SERVER_ERROR: Final = 500
_HIDDEN: Final = frozenset({TENANT_KEY, KB_KEY})


@dataclass(frozen=True, slots=True)
class Bound:
    """Knowledge base, scope and limits of the tools.

    Args:
        kb: The knowledge base.
        scope: Scope of every call; no argument of a tool changes it.
        limits: Limits of requests.
    """

    kb: KnowledgeBase
    scope: Scope | None
    limits: ServeLimits


def search_tools(bound: Bound, *, about: str) -> list[Tool]:
    """Return ``search`` and ``read_document``.

    Args:
        bound: Knowledge base, scope and limits.
        about: Description of the content and of the metadata fields to filter by.
    """
    most = bound.limits.max_top_k

    async def search(
        query: Annotated[str, Field(min_length=1, description="What to look for, in words.")],
        filters: Annotated[list[Comparison] | None, Field(description="Conditions.")] = None,
        top_k: Annotated[int, Field(ge=1, le=most, description="How many passages.")] = min(
            _TOP_K, most
        ),
        mode: Annotated[
            Literal["hybrid", "vector", "keyword"],
            Field(description="By meaning and words, by meaning, or by words."),
        ] = "hybrid",
    ) -> Facts:
        """Search the knowledge base for passages that answer a question.

        Returns the best passages with their document ids; read_document returns a whole document.
        Filters are conditions on metadata fields, all of which must hold.
        """
        conditions = [each.to_filter() for each in filters or ()]
        asked = Query(
            query,
            filters=MetadataFilters(filters=[*conditions]) if conditions else None,
            scope=bound.scope,
            top_k=top_k,
            timeout_s=bound.limits.timeout_s,
        )
        found = await bound.kb.retriever(mode, top_k=top_k).asearch(asked)
        degraded = [f"{each.where} failed" for each in found.degraded]
        return {"passages": [_passage(hit) for hit in found.hits], "degraded": degraded}

    async def read_document(
        document_id: Annotated[str, Field(min_length=1, description="As search returns it.")],
        offset: Annotated[int, Field(ge=0, description="The first passage, from 0.")] = 0,
        limit: Annotated[int, Field(ge=1, le=_MAX_PASSAGES)] = _PASSAGES,
    ) -> Facts:
        """Read the passages of a document in their order, some at a time."""
        nodes = await asyncio.wait_for(
            asyncio.to_thread(bound.kb.get, document_id, scope=bound.scope), bound.limits.timeout_s
        )
        if not nodes:
            raise ToolError(f"there is no document {document_id!r}; search returns document ids")
        return {
            "document_id": document_id,
            "n_passages": len(nodes),
            "metadata": shown(nodes[0].metadata),
            "passages": [node.get_content() for node in nodes[offset : offset + limit]],
        }

    return [tool_of(search, more=about), tool_of(read_document)]


def tool_of(function: Callable[P, Awaitable[Facts]], *, name: str = "", more: str = "") -> Tool:
    """Return a read-only tool that refuses unknown arguments.

    Args:
        function: Function of the tool; its docstring is the description. Errors of this package
            become messages that are safe for a model.
        name: Name of the tool; empty for the name of the function.
        more: Text to add to the description.
    """
    description = f"{inspect.getdoc(function)}\n\n{more}".strip()
    tool = Tool.from_function(
        _answered(function), name=name or None, description=description, annotations=_READS
    )
    model = tool.fn_metadata.arg_model
    model.model_config["extra"] = "forbid"
    model.model_rebuild(force=True)
    return tool.model_copy(update={"parameters": model.model_json_schema(by_alias=True)})


def _answered(tool: Callable[P, Awaitable[Facts]]) -> Callable[P, Awaitable[Facts]]:
    @wraps(tool)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> Facts:
        try:
            return await tool(*args, **kwargs)
        except ToolError:
            raise
        except Exception as error:  # noqa: BLE001 - said in words, and logged without content
            known = http_error_of(error)
            if known.status >= _SERVER_ERROR:  # the MCP package would log the message of the error
                facts = {"tool": tool.__name__, "error": type(error).__name__}
                log.error("tool", extra={"facts": {**facts, "at": raised_at(error)}})
            raise ToolError(known.message) from None

    return wrapped


def shown(metadata: Facts) -> Facts:
    """Return metadata without the scope, which models must not see."""
    return {key: value for key, value in metadata.items() if key not in _HIDDEN}


def _passage(hit: Hit) -> Facts:
    return {
        "document_id": hit.node.ref_doc_id,
        "text": hit.text,
        "score": hit.score,
        "metadata": shown(hit.node.metadata),
    }
