"""LlamaIndex's own selectors, and anybody's made for them."""

import dis
from collections.abc import Callable, Sequence
from inspect import unwrap

from llama_index.core.base.base_selector import BaseSelector, SelectorResult
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.selectors import (
    EmbeddingSingleSelector,
    LLMSingleSelector,
    PydanticSingleSelector,
)
from llama_index.core.tools import ToolMetadata

from llama_retrieval_ext.arguments import of_type
from llama_retrieval_ext.composite.routing.selector import Choice, Selection, Selector
from llama_retrieval_ext.errors import ExecutionError
from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.llm.llm_writer import has_async

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
        result: SelectorResult = yield self._call(tools, query)
        picks: dict[int, Selection] = {}
        for picked in result.selections:
            if not 0 <= picked.index < len(choices):
                raise ExecutionError(f"{self!r} picked route {picked.index + 1} of {len(choices)}")
            selection = Selection(choices[picked.index].name, reason=picked.reason)
            picks.setdefault(picked.index, selection)
        return list(picks.values())[: self._most]

    def _call(self, tools: Sequence[ToolMetadata], query: Query) -> Call[SelectorResult]:
        return Call(
            lambda: self.selector.select(tools, query),
            None if _blocks(self.selector) else lambda: self.selector.aselect(tools, query),
        )

    @property
    def _most(self) -> int | None:
        """How many it was set to pick; None for any number."""
        if isinstance(self.selector, _SINGLE):
            return 1
        most = getattr(self.selector, "_max_outputs", None)  # of LlamaIndex's multi-selectors
        return most if isinstance(most, int) else None

    def __repr__(self) -> str:
        return type(self.selector).__name__ + "()"


def as_selector(selector: Selector | BaseSelector, what: str) -> Selector:
    """The selector, or ours around one of LlamaIndex's.

    Args:
        selector: Ours or LlamaIndex's.
        what: What the argument is called.

    Raises:
        ConfigurationError: It is neither.
    """
    if isinstance(selector, BaseSelector):
        return ForeignSelector(selector)
    return of_type(selector, Selector, what, instead="pass one of ours or of LlamaIndex")


def _blocks(selector: BaseSelector) -> bool:
    """Whether the async way of a selector blocks the event loop: it, or its model, never awaits."""
    # LlamaIndex's own selectors keep their model there.
    llm, model = getattr(selector, "_llm", None), getattr(selector, "_embed_model", None)
    methods: list[Callable[..., object]] = [type(selector)._aselect]  # noqa: SLF001 - there is no public way to see it
    if isinstance(model, BaseEmbedding):
        methods += [type(model)._aget_query_embedding, type(model)._aget_text_embedding]  # noqa: SLF001
    return (isinstance(llm, LLM) and not has_async(llm)) or not all(map(_awaits, methods))


def _awaits(method: Callable[..., object]) -> bool:
    """Whether an async method awaits anything; many only call the blocking one."""
    code = getattr(unwrap(method), "__code__", None)
    return code is None or any(
        each.opname == "GET_AWAITABLE" for each in dis.get_instructions(code)
    )
