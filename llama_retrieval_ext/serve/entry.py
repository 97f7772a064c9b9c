"""Entry points for applications; they import the packages of the extras when called."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.retrievers.kg_rule import Rules
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.serve.guard import ServeLimits
from llama_retrieval_ext.serve.keys import ApiKeys

if TYPE_CHECKING:
    from fastapi import FastAPI
    from mcp.server.mcpserver import MCPServer

    from llama_retrieval_ext.llm.functions import AnyLLM


@checked_call
def create_app(
    kb: KnowledgeBase,
    *,
    keys: ApiKeys | None = None,
    scope: Scope | None = None,
    limits: ServeLimits | None = None,
    llm: "AnyLLM | None" = None,
) -> "FastAPI":
    """Return a FastAPI application that serves a knowledge base.

    It has ``/v1/search``, ``/v1/search-many``, ``/v1/stream``, ``/v1/explain``, ``/v1/fields``,
    ``/v1/documents``, the services of `llama_retrieval_ext.services` at ``/v1/services/``,
    ``/health``, ``/ready``, ``/openapi.json``, and a search page at ``/``. On shutdown, it refuses
    new writes and waits for running ones; it does not close the knowledge base.

    Args:
        kb: The knowledge base to serve.
        keys: Keys with their scopes and rights; None to answer processes of this machine only.
        scope: Bounds every request; None for no bound.
        limits: Limits of requests; None for the defaults of `ServeLimits`.
        llm: Writes answers, replies, insights and reports: any LlamaIndex LLM, or a function from
            prompt to text, sync or async. If None, these routes answer 501.

    Raises:
        MissingDependencyError: The extra ``serve`` is not installed.
        ScopeError: A key has nothing in common with the scope.

    Examples:
        >>> from llama_index.core import MockEmbedding
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     app = create_app(kb)
        >>> sorted(path for path in app.openapi()["paths"] if path.startswith("/v1/s"))[:2]
        ['/v1/search', '/v1/search-many']

    """
    with _needs("serving over HTTP", "serve"):
        from llama_retrieval_ext.serve.app import build_app  # noqa: PLC0415 - an extra
    if keys is not None:
        keys = keys.within(scope)  # raises at once, not with the first request
    return build_app(kb, keys=keys, scope=scope, limits=limits or ServeLimits(), llm=llm)


@checked_call
def serve_http(  # noqa: PLR0913 - what a server is
    kb: KnowledgeBase,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    keys: ApiKeys | None = None,
    scope: Scope | None = None,
    limits: ServeLimits | None = None,
    llm: "AnyLLM | None" = None,
) -> None:
    """Serve a knowledge base over HTTP, until SIGTERM or Ctrl+C.

    After the signal, requests have ten seconds to end; writes have no limit. Standard error gets
    one JSON object per request: method, route, status, milliseconds, key; no query, text or id.

    Args:
        kb: The knowledge base to serve; the caller closes it.
        host: The address to listen on; without keys, a loopback address.
        port: The port; 0 for any free port.
        keys: As for `create_app`.
        scope: As for `create_app`.
        limits: As for `create_app`.
        llm: As for `create_app`.

    Raises:
        ConfigurationError: Without keys, the address is not a loopback address.
        MissingDependencyError: The extra ``serve`` is not installed.
        SystemExit: After SIGTERM.
    """
    app = create_app(kb, keys=keys, scope=scope, limits=limits, llm=llm)
    from llama_retrieval_ext.serve.server import check_host, run_server  # noqa: PLC0415 - an extra

    check_host(host, keys)
    run_server(app, host=host, port=port)


def serve_workers(
    factory: str, *, host: str, port: int, keys: ApiKeys | None, workers: int
) -> None:
    """Serve an application over HTTP by several processes; each calls ``module:function``."""
    with _needs("serving over HTTP", "serve"):
        from llama_retrieval_ext.serve.server import check_host, run_workers  # noqa: PLC0415 - an extra
    check_host(host, keys)
    run_workers(factory, host=host, port=port, workers=workers)


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

    The tools are ``search``, ``search_many`` and ``read_document``; with a graph also
    ``neighbours`` and ``rules``.
    The description of ``search`` lists the current metadata fields.

    Args:
        kb: The knowledge base to serve.
        scope: Scope of every call; no argument of a tool can widen it.
        about: Description of the content of the knowledge base, for the model.
        rules: Inference rules for the graph, or the path of their file; None for the rules of
            `KGRetriever`.
        limits: Only ``max_top_k``, ``max_queries`` and ``timeout_s`` apply to tools; None for the
            defaults.

    Raises:
        MissingDependencyError: The extra ``mcp`` is not installed.
        ScopeRequiredError: The knowledge base requires a scope.

    Examples:
        >>> import asyncio
        >>> from llama_index.core import MockEmbedding
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     server = create_mcp_server(kb)
        >>> [tool.name for tool in asyncio.run(server.list_tools())]
        ['search', 'search_many', 'facets', 'read_document']

    """
    with _needs("serving MCP", "mcp"):
        from llama_retrieval_ext.serve.mcp_server import build_mcp_server  # noqa: PLC0415 - an extra
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
    """Serve a knowledge base over MCP, until the client disconnects, SIGTERM or Ctrl+C.

    Args:
        kb: As for `create_mcp_server`; the caller closes it.
        scope: As for `create_mcp_server`.
        about: As for `create_mcp_server`.
        rules: As for `create_mcp_server`.
        address: Host and port for streamable HTTP at ``/mcp``; None for stdio.
        keys: Accepted keys, for HTTP; the scope of each must include all of ``scope``. None to
            answer processes of this machine only.
        limits: Limits of requests; None for the defaults of `ServeLimits`.

    Raises:
        ConfigurationError: Without keys, the address is not a loopback address; or there are keys
            but no address.
        MissingDependencyError: The extra ``mcp`` is not installed.
        ScopeRequiredError: The knowledge base requires a scope.
        SystemExit: After SIGTERM, over HTTP.
    """
    limits = limits or ServeLimits()
    server = create_mcp_server(kb, scope=scope, about=about, rules=rules, limits=limits)
    # uvicorn is a dependency of the MCP package.
    from llama_retrieval_ext.serve.mcp_server import mcp_app  # noqa: PLC0415 - an extra
    from llama_retrieval_ext.serve.server import check_host, json_logs, run_server  # noqa: PLC0415 - likewise

    if address is not None:
        host, port = address
        check_host(host, keys)
        run_server(mcp_app(server, scope=scope, keys=keys, limits=limits), host=host, port=port)
        return
    if keys is not None:
        raise ConfigurationError("keys are for HTTP; over stdio there is one client: add --http")
    with json_logs():
        server.run("stdio")


@contextmanager
def _needs(feature: str, extra: str) -> Iterator[None]:
    """Name the extra if a package is missing; an import error of this package is unchanged."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("llama_retrieval_ext"):
            raise
        raise MissingDependencyError(feature, extra) from error
