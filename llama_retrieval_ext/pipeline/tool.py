"""`Tooled`: what makes a retriever a tool for agents."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llama_retrieval_ext.query import Scope

if TYPE_CHECKING:
    from llama_index.core.tools import FunctionTool


class Tooled:
    """Mixin of retrievers that an agent can call."""

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
            description: What the model finds there; fields and values to filter by are added.
            scope: The scope, which no argument of the model can widen.
            options: ``filters``, ``top_k``, ``max_tokens``, ``sample``, ``timeout_s`` and
                ``tokenize``.
        """
        # By name: tools stand far above retrievers.
        tools = import_module("llama_retrieval_ext.capabilities.tools")
        tool: FunctionTool = tools.retrieval_tool(self, name, description, scope=scope, **options)
        return tool
