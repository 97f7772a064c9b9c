"""What applications call; the packages behind it are imported when it is called."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from llama_retrieval_ext.ingest.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.retrievers.kg_rule import Rules
from llama_retrieval_ext.serve.guard import ServeLimits
from llama_retrieval_ext.serve.keys import ApiKeys

if TYPE_CHECKING:
    from fastapi import FastAPI
    from mcp.server.mcpserver import MCPServer


@checked_call
def create_app(
    kb: KnowledgeBase,
    *,
    keys: ApiKeys | None = None,
    scope: Scope | None = None,
    limits: ServeLimits | None = None,
) -> "FastAPI":
    """Return a FastAPI application that serves a knowledge base.

    It has ``/v1/search``, ``/v1/stream``, ``/v1/explain``, ``/v1/fields``, ``/v1/documents``,
    ``/health``, ``/ready``, ``/openapi.json``, and a page for people at ``/``. When it stops, it
    takes no more writes and waits for those that run; it does not close the knowledge base.

    Args:
        kb: What is served.
        keys: Who may use it, and what each sees; None to answer processes of this machine only.
        scope: Bounds every request; None for no bound.
        limits: What is bounded besides; None for the defaults of `ServeLimits`.

    Raises:
        MissingDependencyError: The extra ``serve`` is not installed.
        ScopeError: A key has nothing in common with the scope.

    Examples:
        >>> from llama_index.core import MockEmbedding
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     app = create_app(kb)
        >>> sorted(app.openapi()["paths"])[-3:]
        ['/v1/fields', '/v1/search', '/v1/stream']

    """
    try:
        from llama_retrieval_ext.serve.app import build_app  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise _missing(error, "serving over HTTP", "serve") from error
    if keys is not None:
        keys = keys.within(scope)  # now, not with the first request
    return build_app(kb, keys=keys, scope=scope, limits=limits or ServeLimits())


@checked_call
def serve_http(
    kb: KnowledgeBase,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    keys: ApiKeys | None = None,
    scope: Scope | None = None,
    limits: ServeLimits | None = None,
) -> None:
    """Serve a knowledge base over HTTP, until SIGTERM or Ctrl+C.

    Requests then have ten seconds to end, and writes what they need. Standard error gets one JSON
    object a request: method, route, status, milliseconds, key; no query, text or id.

    Args:
        kb: What is served; the caller closes it.
        host: The address to listen at; without keys one of this machine alone.
        port: The port; 0 for any.
        keys: As for `create_app`.
        scope: As for `create_app`.
        limits: As for `create_app`.

    Raises:
        ConfigurationError: Without keys, the address is not a loopback address.
        MissingDependencyError: The extra ``serve`` is not installed.
        SystemExit: After SIGTERM.
    """
    app = create_app(kb, keys=keys, scope=scope, limits=limits)
    from llama_retrieval_ext.serve.server import check_host, run_server  # noqa: PLC0415 - an extra

    check_host(host, keys)
    run_server(app, host=host, port=port)


@checked_call
def create_mcp_server(
    kb: KnowledgeBase,
    *,
    scope: Scope | None = None,
    about: str = "",
    rules: Rules | None = None,
    limits: ServeLimits | None = None,
) -> "MCPServer":
    """Return a server of the Model Context Protocol, with tools that read a knowledge base.

    The tools are ``search`` and ``read_document``; with a graph also ``neighbours`` and ``rules``.
    The description of ``search`` lists the metadata fields that there are now.

    Args:
        kb: What is served.
        scope: Of every call; no argument of a tool can widen it.
        about: What is in the knowledge base, for the model that uses it.
        rules: What may be concluded from the graph: rules, or the path of their file; None for
            those of `KGRetriever`.
        limits: Of these, ``max_top_k`` and ``timeout_s`` hold for tools; None for the defaults.

    Raises:
        MissingDependencyError: The extra ``mcp`` is not installed.
        ScopeRequiredError: The knowledge base requires a scope.

    Examples:
        >>> import asyncio
        >>> from llama_index.core import MockEmbedding
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     server = create_mcp_server(kb)
        >>> [tool.name for tool in asyncio.run(server.list_tools())]
        ['search', 'read_document']

    """
    try:
        from llama_retrieval_ext.serve.mcp_server import build_mcp_server  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise _missing(error, "serving MCP", "mcp") from error
    return build_mcp_server(
        kb, scope=scope, about=about, rules=rules, limits=limits or ServeLimits()
    )


@checked_call
def serve_mcp(  # noqa: PLR0913 - what a server is
    kb: KnowledgeBase,
    *,
    scope: Scope | None = None,
    about: str = "",
    rules: Rules | None = None,
    address: tuple[str, int] | None = None,
    keys: ApiKeys | None = None,
    limits: ServeLimits | None = None,
) -> None:
    """Serve a knowledge base over MCP, until its client hangs up, or SIGTERM or Ctrl+C.

    Args:
        kb: As for `create_mcp_server`; the caller closes it.
        scope: Likewise.
        about: Likewise.
        rules: Likewise.
        address: Host and port for streamable HTTP at ``/mcp``; None for stdio.
        keys: For HTTP: who may use it. A key must reach all of the scope. None to answer processes
            of this machine only.
        limits: What is bounded; None for the defaults of `ServeLimits`.

    Raises:
        ConfigurationError: Without keys, the address is not a loopback address; or there are keys,
            and no address.
        MissingDependencyError: The extra ``mcp`` is not installed.
        ScopeRequiredError: The knowledge base requires a scope.
        SystemExit: After SIGTERM, over HTTP.
    """
    limits = limits or ServeLimits()
    server = create_mcp_server(kb, scope=scope, about=about, rules=rules, limits=limits)
    # What the package of MCP needs has uvicorn.
    from llama_retrieval_ext.serve.mcp_server import mcp_app  # noqa: PLC0415 - an extra
    from llama_retrieval_ext.serve.server import (  # noqa: PLC0415 - likewise
        check_host,
        json_logs,
        run_server,
    )

    if address is not None:
        host, port = address
        check_host(host, keys)
        run_server(mcp_app(server, scope=scope, keys=keys, limits=limits), host=host, port=port)
        return
    if keys is not None:
        raise ConfigurationError("keys are for HTTP; over stdio there is one client: add --http")
    with json_logs():
        server.run("stdio")


def _missing(error: ModuleNotFoundError, feature: str, extra: str) -> ImportError:
    """The error for an extra that is not installed; a defect of ours stays what it is."""
    if (error.name or "").startswith("llama_retrieval_ext"):
        return error
    return MissingDependencyError(feature, extra)
