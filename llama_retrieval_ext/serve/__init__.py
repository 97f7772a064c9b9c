"""Servers for a knowledge base over HTTP and MCP."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.serve.entry import create_app, create_mcp_server, serve_http, serve_mcp
    from llama_retrieval_ext.serve.guard import ServeLimits
    from llama_retrieval_ext.serve.keys import ApiKeys

__all__ = ["ApiKeys", "ServeLimits", "create_app", "create_mcp_server", "serve_http", "serve_mcp"]

# Hidden from type checkers: they would accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.serve.entry": (
            "create_app",
            "create_mcp_server",
            "serve_http",
            "serve_mcp",
        ),
        "llama_retrieval_ext.serve.guard": ("ServeLimits",),
        "llama_retrieval_ext.serve.keys": ("ApiKeys",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
