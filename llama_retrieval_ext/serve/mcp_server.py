"""The MCP server: its tools, which search and read a knowledge base, and its ASGI application."""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, Unpack

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import Tool as ListedTool
from pydantic import Field

import llama_retrieval_ext as ext
from llama_retrieval_ext.capabilities.tools import FieldConditions, FilterFields, all_of
from llama_retrieval_ext.dates import VALID_FROM, VALID_TO
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import arun, in_thread
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.filters import SCOPE_KEYS
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import GraphNode, Hop
from llama_retrieval_ext.graph.entity_linking import EntityLinker
from llama_retrieval_ext.knowledge_base.kinds import StoreKind
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Query, SearchOptions
from llama_retrieval_ext.results import SearchResult
from llama_retrieval_ext.retrievers.kg_rule import Rules
from llama_retrieval_ext.scope import Scope, at_time
from llama_retrieval_ext.serve.guard import (
    CONTEXT,
    App,
    Guard,
    Message,
    Receive,
    Send,
    ServeLimits,
    log,
)
from llama_retrieval_ext.serve.http_errors import HttpError
from llama_retrieval_ext.serve.keys import ApiKeys, KeyHolder
from llama_retrieval_ext.serve.mcp_tool import Facts, tool_of
from llama_retrieval_ext.serve.requests import MAX_TEXT, Cursor, Sort, Weights

# Arguments of tools.
Words: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=MAX_TEXT, description="What to look for, in words.")
]
Conditions: TypeAlias = Annotated[FieldConditions | None, Field(description="Conditions.")]
Mode: TypeAlias = Annotated[
    StoreKind, Field(description="By meaning and words, by meaning, or by words.")
]
FieldWeights: TypeAlias = Annotated[
    Weights | None,
    Field(description='Fields whose words are searched, with weights, such as {"title": 1}.'),
]
Correct: TypeAlias = Annotated[bool, Field(description="Whether typing errors are corrected.")]
Interpret: TypeAlias = Annotated[
    bool, Field(description="Whether words that state filters, as 'after 2010', become filters.")
]
AsOf: TypeAlias = Annotated[
    str | None, Field(description="What held at this date, such as 2021-09-01; now if left out.")
]
KnownAt: TypeAlias = Annotated[str | None, Field(description="What was known at this date.")]
_SEARCH: Final = "search"
_ABOUT: Final = "The documents of the knowledge base."
_TOP_K: Final = 8
_PASSAGES: Final = 20
_MAX_PASSAGES: Final = 100
_EDGES: Final = 50
_MOST_EDGES: Final = 200
_SHOWN: Final = 100
_DEPTH: Final = 100  # of pages: a model repeats the cursor, of some characters for each hit
_MOST_FIELDS: Final = 20
_EVERYONE: Final = Scope(principals=[])

# The holder of the key of the request that a tool runs for.
_caller: ContextVar[KeyHolder | None] = ContextVar("mcp_caller", default=None)


@dataclass(frozen=True, slots=True)
class _Bound:
    """Knowledge base and limits of the tools, and the scope of every call."""

    kb: KnowledgeBase
    served: Scope | None
    limits: ServeLimits

    def query(
        self, text: str, conditions: FieldConditions | None, **options: Unpack[SearchOptions]
    ) -> Query:
        """Return the query of a tool."""
        filters, timeout_s = all_of(conditions), self.limits.timeout_s
        return Query(text, filters=filters, scope=self.scope, timeout_s=timeout_s).but(**options)

    @property
    def scope(self) -> Scope | None:
        """The scope of a call: what is served, for the principals of the caller's key."""
        caller = _caller.get()
        bounded = None if caller is None else caller.bounded(None)
        if bounded is None or bounded.principals is None:
            return self.served
        return bounded if self.served is None else self.served.narrowed(bounded)


def build_mcp_server(
    kb: KnowledgeBase, *, scope: Scope | None, about: str, rules: Rules | None, limits: ServeLimits
) -> MCPServer:
    """Return the server; see `create_mcp_server`."""
    bound = _Bound(kb, scope, limits)
    # All callers see the description of the metadata fields.
    is_missing = scope is None and kb.require_scope  # then it raises
    shown = scope if is_missing or (scope and scope.principals) else _EVERYONE.narrowed(scope)
    fields = FilterFields(
        kb.retriever("hybrid", scope=shown), about or _ABOUT, timeout_s=limits.timeout_s
    )
    fields.described()  # raises if nothing can be searched
    tools = _search_tools(bound)
    if kb.graph is not None:
        tools += _graph_tools(bound, kb.graph, rules=rules)
    elif rules is not None:
        raise ConfigurationError(f"rules are for a graph, which {kb.url} has not")
    return _Server(
        fields,
        "llama-retrieval",
        version=ext.__version__,
        instructions=about or None,
        tools=tools,
        log_level="WARNING",
    )


class _Server(MCPServer):
    """The server; fields of documents are read whenever a client lists the tools."""

    def __init__(self, fields: FilterFields, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the package's
        super().__init__(*args, **kwargs)
        self._fields = fields

    async def list_tools(self) -> list[ListedTool]:
        """Return the tools; ``search`` is described with the fields that everyone can see now."""
        try:
            more = await self._fields.adescribed()
        except Exception as error:  # noqa: BLE001 - tools can be called without it; it is logged
            log.error("fields", extra={"facts": {"error": type(error).__name__}})
            more = self._fields.about
        tools = await super().list_tools()
        return [
            tool.model_copy(update={"description": f"{tool.description}\n\n{more}"})
            if tool.name == _SEARCH
            else tool
            for tool in tools
        ]


def mcp_app(
    server: MCPServer, *, scope: Scope | None, keys: ApiKeys | None, limits: ServeLimits
) -> App:
    """Return an ASGI application that serves MCP at ``/mcp``; keys must reach all of the scope."""
    app = server.streamable_http_app(
        json_response=True,
        stateless_http=True,
        max_request_body_size=limits.max_body_bytes,
        # The guard checks host names, also for servers with keys.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )

    async def reached(request: Message, receive: Receive, send: Send) -> None:
        is_http = request["type"] == "http"
        if is_http and not request["state"][CONTEXT].caller.reaches(scope):
            raise HttpError(403, "out_of_scope", "this API key does not reach what is served")
        if is_http and request["method"] == "GET":  # a notification stream: unused
            raise HttpError(405, "bad_request", "this server answers POST alone")
        if is_http:
            _caller.set(request["state"][CONTEXT].caller)
        await app(request, receive, send)

    return Guard(reached, limits=limits, keys=keys, scope=None)


def _search_tools(bound: _Bound) -> list[Tool]:
    """Return ``search``, ``search_many``, ``facets`` and ``read_document``."""
    most = bound.limits.max_top_k
    few = min(_TOP_K, most)

    async def search(  # noqa: PLR0913 - the arguments of the tool
        query: Words,
        *,
        filters: Conditions = None,
        top_k: Annotated[int, Field(ge=1, le=most, description="How many passages.")] = few,
        mode: Mode = "hybrid",
        correct: Correct = True,
        interpret: Interpret = False,
        fields: FieldWeights = None,
        as_of: AsOf = None,
        known_at: KnownAt = None,
        sort: Sort = None,
        cursor: Cursor = None,
    ) -> Facts:
        """Search the knowledge base for passages that answer a question.

        Returns the best passages with their document ids; read_document returns a document.
        Filters are conditions on metadata fields, all of which must hold. The same call with the
        cursor of an answer returns the next passages.
        """
        options = SearchOptions(
            correct=correct, interpret=interpret, fields=fields, as_of=as_of, known_at=known_at
        )
        asked = bound.query(query, filters, **options)
        depth = max(_DEPTH, top_k)
        return _found(
            await bound.kb.asearch(asked, mode, top_k=top_k, sort=sort, cursor=cursor, depth=depth)
        )

    async def facets(
        fields: Annotated[list[str], Field(min_length=1, max_length=_MOST_FIELDS)],
        query: Words | None = None,
        filters: Conditions = None,
        top: Annotated[int, Field(ge=1, le=_MAX_PASSAGES, description="Values of each.")] = few,
        as_of: AsOf = None,
        known_at: KnownAt = None,
    ) -> Facts:
        """Count the documents by the values of metadata fields, and by ranges.

        With a query, among those that share a word with it. A value can be used in a filter.
        """
        scope = at_time(bound.scope, as_of, known_at)
        counting = bound.kb.afacets(fields, query, filters=all_of(filters), scope=scope, top=top)
        return (await asyncio.wait_for(counting, bound.limits.timeout_s)).to_dict()

    async def search_many(  # noqa: PLR0913 - the arguments of the tool
        queries: Annotated[list[Words], Field(min_length=1, max_length=bound.limits.max_queries)],
        *,
        filters: Conditions = None,
        top_k: Annotated[int, Field(ge=1, le=most, description="Passages of each query.")] = few,
        mode: Mode = "hybrid",
        correct: Correct = True,
        interpret: Interpret = False,
        fields: FieldWeights = None,
        as_of: AsOf = None,
        known_at: KnownAt = None,
    ) -> Facts:
        """Search for several things at once, with the same filters; results are in their order."""
        options = SearchOptions(
            correct=correct, interpret=interpret, fields=fields, as_of=as_of, known_at=known_at
        )
        asked = [bound.query(query, filters, **options) for query in queries]
        answers = bound.kb.retriever(mode, top_k=top_k).asearch_many(asked)
        results = await asyncio.wait_for(answers, bound.limits.timeout_s)
        return {"results": [{"query": result.query, **_found(result)} for result in results]}

    async def read_document(
        document_id: Annotated[str, Field(min_length=1, description="As search returns it.")],
        offset: Annotated[int, Field(ge=0, description="The first passage, from 0.")] = 0,
        limit: Annotated[int, Field(ge=1, le=_MAX_PASSAGES)] = _PASSAGES,
    ) -> Facts:
        """Read the passages of a document in their order, some at a time.

        A page of a PDF, a slide and a row of a table are documents of their own, whose ids end in
        _part_ and a number: such an id gives one page, and the file_path in its metadata, as
        document_id, gives the whole file.
        """
        scope = bound.scope
        nodes = await asyncio.wait_for(
            in_thread(lambda: bound.kb.get(document_id, scope=scope)), bound.limits.timeout_s
        )
        if not nodes:
            raise ToolError(f"there is no document {document_id!r}; search returns document ids")
        return {
            "document_id": document_id,
            "n_passages": len(nodes),
            "metadata": _shown(nodes[0].metadata),
            "passages": [node.get_content() for node in nodes[offset : offset + limit]],
        }

    return [tool_of(search), tool_of(search_many), tool_of(facets), tool_of(read_document)]


def _graph_tools(bound: _Bound, graph: GraphBackend, *, rules: Rules | None) -> list[Tool]:
    """Return ``neighbours`` and ``rules``."""
    linker, most = EntityLinker(graph), bound.limits.max_top_k
    concluding = bound.kb.retriever("kg_rule", linker=linker, rules=rules)

    async def neighbours(
        entity: Annotated[
            str, Field(min_length=1, max_length=MAX_TEXT, description="Its name or id.")
        ],
        limit: Annotated[int, Field(ge=1, le=_MOST_EDGES, description="Most relations.")] = _EDGES,
        as_of: AsOf = None,
        known_at: KnownAt = None,
    ) -> Facts:
        """List the relations of an entity of the knowledge graph, the strongest first."""
        scope = at_time(bound.scope, as_of, known_at)
        plan = _neighbours(scope, graph, linker, entity, limit)
        return await asyncio.wait_for(arun(plan), bound.limits.timeout_s)

    async def conclude(
        question: Annotated[
            str, Field(min_length=1, max_length=MAX_TEXT, description="It names the entities.")
        ],
        top_k: Annotated[int, Field(ge=1, le=most)] = min(_EDGES, most),
        as_of: AsOf = None,
        known_at: KnownAt = None,
    ) -> Facts:
        """List what rules conclude from the knowledge graph for a question, each with its proof."""
        query = bound.query(question, None, top_k=top_k, as_of=as_of, known_at=known_at)
        result = await concluding.asearch(query)
        conclusions = [
            {
                "text": hit.text,
                "rule": hit.node.metadata.get("rule"),
                "confidence": hit.score,
                "proof": [edge.text for edge in hit.proof],
            }
            for hit in result.hits
        ]
        return {"conclusions": conclusions}

    return [tool_of(neighbours), tool_of(conclude, name="rules")]


def _neighbours(
    scope: Scope | None, graph: GraphBackend, linker: EntityLinker, entity: str, limit: int
) -> Plan[Facts]:
    node_id = entity
    if not (yield graph.plan_nodes([entity], scope=scope)):
        linked = yield from linker.plan_link(entity, scope=scope, limit=1)
        if not linked:
            raise ToolError(f"the graph has no entity {entity!r}")
        node_id = linked[0].node_id
    edges = (yield graph.plan_neighbours([node_id], Hop(fan_out=limit), scope=scope))[node_id]
    ids = {node_id, *(end for edge in edges for end in (edge.source, edge.target))}
    nodes = yield graph.plan_nodes(sorted(ids), scope=scope)
    relations = [
        {
            "from": _named(nodes[e.source]),
            "relation": e.type,
            "to": _named(nodes[e.target]),
            **{key: e.properties[key] for key in (VALID_FROM, VALID_TO) if key in e.properties},
        }
        for e in edges
        if e.source in nodes and e.target in nodes
    ]
    start = nodes[node_id]
    return {
        "entity": _named(start),
        "label": start.label,
        "properties": _shown(dict(start.properties)),
        "relations": relations,
    }


def _named(node: GraphNode) -> str:
    return node.name if node.text is None else f"passage {node.text[:_SHOWN]!r}"


def _shown(metadata: Facts) -> Facts:
    """Return metadata without the scope, which models must not see."""
    return {key: value for key, value in metadata.items() if key not in SCOPE_KEYS}


def _found(result: SearchResult) -> Facts:
    passages = [
        {
            "document_id": hit.node.ref_doc_id,
            "text": hit.text,
            "score": hit.score,
            "metadata": _shown(hit.node.metadata),
            "highlights": [highlight.to_dict() for highlight in hit.highlights],
        }
        for hit in result.hits
    ]
    return {
        "passages": passages,
        "degraded": [f"{part.where} failed" for part in result.degraded],
        "hints": [*map(str, result.hints)],
        "corrected": result.corrected and result.corrected.to_dict(),
        **({} if result.cursor is None else {"cursor": result.cursor}),
    }
