"""The MCP server, and its ASGI application for HTTP."""

from typing import Final

from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

import llama_retrieval_ext as ext
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.ingest.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.retrievers.kg_rule import Rules
from llama_retrieval_ext.serve.graph_tools import graph_tools
from llama_retrieval_ext.serve.guard import CONTEXT, App, Guard, Message, Receive, Send, ServeLimits
from llama_retrieval_ext.serve.http_errors import HttpError
from llama_retrieval_ext.serve.keys import ApiKeys
from llama_retrieval_ext.serve.mcp_tools import Bound, search_tools

_ABOUT: Final = "The documents of the knowledge base."


def build_mcp_server(
    kb: KnowledgeBase,
    *,
    scope: Scope | None,
    about: str,
    rules: Rules | None,
    limits: ServeLimits,
) -> MCPServer:
    """Return the server; see `create_mcp_server`."""
    bound = Bound(kb, scope, limits)
    # The LlamaIndex tool builds the description of the metadata fields.
    described = kb.retriever("hybrid").as_tool("search", about or _ABOUT, scope=scope)
    tools = search_tools(bound, about=described.metadata.description)
    if kb.graph is not None:
        tools += graph_tools(bound, kb.graph, rules=rules)
    elif rules is not None:
        raise ConfigurationError(f"rules are for a graph, which {kb.url} has not")
    return MCPServer(
        "llama-retrieval",
        version=ext.__version__,
        instructions=about or None,
        tools=tools,
        log_level="WARNING",
    )


def mcp_app(
    server: MCPServer, *, scope: Scope | None, keys: ApiKeys | None, limits: ServeLimits
) -> App:
    """Return an ASGI application that serves MCP over streamable HTTP at ``/mcp``.

    Args:
        server: The server from `build_mcp_server`.
        scope: The scope of its tools; a key must reach all of it.
        keys: The accepted keys; None to answer processes of this machine only.
        limits: Limits of requests.
    """
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
        await app(request, receive, send)

    return Guard(reached, limits=limits, keys=keys, scope=None)
