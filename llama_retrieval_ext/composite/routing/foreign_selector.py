"""LlamaIndex's own selectors, and anybody's made for them."""

from collections.abc import Sequence

from llama_index.core.base.base_selector import BaseSelector, SelectorResult
from llama_index.core.selectors import (
    EmbeddingSingleSelector,
    LLMSingleSelector,
    PydanticSingleSelector,
)
from llama_index.core.tools import ToolMetadata

from llama_retrieval_ext.composite.routing.selector import Choice, Selection, Selector
from llama_retrieval_ext.errors import ExecutionError
from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.query import Query

_SINGLE = (LLMSingleSelector, PydanticSingleSelector, EmbeddingSingleSelector)


class ForeignSelector(Selector):
    """A LlamaIndex selector: its answer is checked before it is followed.

    LlamaIndex reads an answer of 0 as the last route, passes on what is out of range, and lets a
    selector that is to pick one pick several.

    Args:
        selector: The selector.
    """

    def __init__(self, selector: BaseSelector) -> None:
        self.selector = selector

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """What the selector picks.

        Raises:
            ExecutionError: It picks a route that there is not.
        """
        tools = [ToolMetadata(name=each.name, description=each.description) for each in choices]
        # In a thread: some of LlamaIndex's selectors are async by name only and block the loop.
        result: SelectorResult = yield Call(lambda: self.selector.select(tools, query))
        picks: dict[int, Selection] = {}
        for picked in result.selections:
            if not 0 <= picked.index < len(choices):
                raise ExecutionError(f"{self!r} picked route {picked.index + 1} of {len(choices)}")
            selection = Selection(choices[picked.index].name, reason=picked.reason)
            picks.setdefault(picked.index, selection)
        return list(picks.values())[: self._most]

    @property
    def _most(self) -> int | None:
        """How many it was set to pick; None for any number."""
        if isinstance(self.selector, _SINGLE):
            return 1
        most = getattr(self.selector, "_max_outputs", None)  # of LlamaIndex's multi-selectors
        return most if isinstance(most, int) else None

    def __repr__(self) -> str:
        return type(self.selector).__name__ + "()"
