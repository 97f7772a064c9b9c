"""The MCP server: its tools, and what stands before it over HTTP."""

from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

import llama_retrieval_ext as ext
from llama_retrieval_ext.ingest.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY, Scope
from llama_retrieval_ext.retrievers.kg_rule import Rules
from llama_retrieval_ext.serve.guard import CONTEXT, App, Guard, Message, Receive, Send, ServeLimits
from llama_retrieval_ext.serve.http_errors import HttpError
from llama_retrieval_ext.serve.keys import ApiKeys
from llama_retrieval_ext.serve.mcp_tools import Bound, search_tools


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
    fields = _fields(kb, scope)
    return MCPServer(
        "llama-retrieval",
        version=ext.__version__,
        instructions=about or None,
        tools=search_tools(bound, fields=f"{about}\n{fields}".strip()),
        log_level="WARNING",
    )


def mcp_app(
    server: MCPServer, *, scope: Scope | None, keys: ApiKeys | None, limits: ServeLimits
) -> App:
    """Return an ASGI application that serves MCP over streamable HTTP at ``/mcp``.

    Args:
        server: Of `build_mcp_server`.
        scope: The one that its tools are bound to: a key must reach all of it.
        keys: Who may use it; None for this machine only.
        limits: What is bounded.
    """
    app = server.streamable_http_app(
        json_response=True,
        stateless_http=True,
        max_request_body_size=limits.max_body_bytes,
        # The guard checks names, in a way that also fits a server with keys.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )

    async def reached(request: Message, receive: Receive, send: Send) -> None:
        is_http = request["type"] == "http"
        if is_http and not request["state"][CONTEXT].caller.reaches(scope):
            raise HttpError(403, "out_of_scope", "this API key does not reach what is served")
        await app(request, receive, send)

    return Guard(reached, limits=limits, keys=keys, scope=None)


def _fields(kb: KnowledgeBase, scope: Scope | None) -> str:
    names = sorted({*kb.metadata_fields(scope=scope)} - {TENANT_KEY, KB_KEY})
    return f"Fields to filter by: {', '.join(names)}." if names else ""
