"""`Tooled`: mixin that provides a retriever as a tool for agents."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llama_retrieval_ext.query import Scope

if TYPE_CHECKING:
    from llama_index.core.tools import FunctionTool


class Tooled:
    """Mixin for retrievers that an agent can call."""

    def as_tool(
        self,
        name: str,
        description: str,
        *,
        scope: Scope | None = None,
        **options: Any,  # noqa: ANN401 - those of `retrieval_tool`
    ) -> "FunctionTool":
        """Return a LlamaIndex tool that searches within a scope; see `retrieval_tool`.

        Args:
            name: Name of the tool.
            description: Description of the content for the model; filterable fields and values are
                added.
            scope: The scope; arguments of the model cannot widen it.
            options: ``filters``, ``top_k``, ``max_tokens``, ``sample``, ``timeout_s`` and
                ``tokenize``.
        """
        # Imported by name: tools are in a higher layer than retrievers.
        tools = import_module("llama_retrieval_ext.capabilities.tools")
        tool: FunctionTool = tools.retrieval_tool(self, name, description, scope=scope, **options)
        return tool
