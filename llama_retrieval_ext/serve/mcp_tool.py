"""A tool of the MCP server: its arguments, its results and its errors as a model reads them."""

import inspect
import json
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeAlias

from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import ValidationError
from pydantic_core import to_json, to_jsonable_python

from llama_retrieval_ext.checks import problems
from llama_retrieval_ext.serve.guard import log
from llama_retrieval_ext.serve.http_errors import http_error_of, raised_at
from llama_retrieval_ext.text.normalization import valid_text

P = ParamSpec("P")
Facts: TypeAlias = dict[str, Any]  # Any: tools return JSON

_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_SERVER_ERROR: Final = 500


def tool_of(function: Callable[P, Awaitable[Facts]], *, name: str = "") -> Tool:
    """Return a read-only tool that refuses unknown arguments; its docstring is the description."""
    tool = _Tool.from_function(
        _answered(function),
        name=name or None,
        description=inspect.getdoc(function),
        annotations=_READS,
    )
    model = tool.fn_metadata.arg_model
    model.model_config["extra"] = "forbid"
    model.model_rebuild(force=True)
    return tool.model_copy(update={"parameters": model.model_json_schema(by_alias=True)})


class _Tool(Tool):
    """A tool whose errors of arguments are one line, without links."""

    async def run(self, arguments: dict[str, Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the package's
        """Run the tool."""
        try:
            return await super().run(arguments, *args, **kwargs)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(error, UnexpectedToolError) or not isinstance(cause, ValidationError):
                raise
            reason = problems(cause.errors(), self.fn_metadata.arg_model.model_fields)
            raise ToolError(f"{self.name}: {reason}") from None


def _answered(tool: Callable[P, Awaitable[Facts]]) -> Callable[P, Awaitable[CallToolResult]]:
    """Return a tool whose errors become messages that are safe for a model."""

    @wraps(tool)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> CallToolResult:
        try:
            return _result_of(await tool(*args, **kwargs))
        except ToolError:
            raise
        except Exception as error:  # noqa: BLE001 - said in words, and logged without content
            failure = http_error_of(error)
            # The MCP package would log the message of the error.
            if failure.status >= _SERVER_ERROR:
                facts = {"tool": tool.__name__, "error": type(error).__name__}
                log.error("tool", extra={"facts": {**facts, "at": raised_at(error)}})
            raise ToolError(failure.message) from None

    return wrapped


def _result_of(facts: Facts) -> CallToolResult:
    """Return the result of a tool, as text and as JSON; NaN becomes null."""
    try:
        facts = to_jsonable_python(facts, inf_nan_mode="null", fallback=str)
        text = to_json(facts, indent=2).decode()
    except ValueError:  # lone surrogates, of a query, which the package cannot send
        text = valid_text(json.dumps(facts, ensure_ascii=False, default=str))
        facts = json.loads(text, parse_constant=lambda _: None)
        text = json.dumps(facts, ensure_ascii=False, indent=2)
    return CallToolResult(content=[TextContent(text=text)], structured_content=facts)
