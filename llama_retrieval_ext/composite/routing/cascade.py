"""Selectors one after the other, the cheap ones first."""

from collections.abc import Sequence

from llama_index.core.base.base_selector import BaseSelector

from llama_retrieval_ext.composite.routing.foreign_selector import as_selector
from llama_retrieval_ext.composite.routing.selector import Choice, Selection, Selector, selected
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.degraded import note_degraded
from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.execution.legs import MISTAKES
from llama_retrieval_ext.query import Query


class CascadeSelector(Selector):
    """The selection of the first selector that does not abstain.

    One that fails or is late counts as one that abstains, and the answer is marked degraded. Where
    the query has a time limit, each selector gets an equal part of what is left for selection. When
    all abstain, so does the cascade, and the router takes its fallback.

    Args:
        selectors: Ours or LlamaIndex's, in the order in which they are asked, for instance rules,
            embedding, LLM.

    Raises:
        ConfigurationError: There is none, or one is no selector.
    """

    def __init__(self, *selectors: Selector | BaseSelector) -> None:
        if not selectors:
            raise ConfigurationError("a cascade needs at least one selector")
        self.selectors = tuple(as_selector(each, "a selector") for each in selectors)

    def check(self, choices: Sequence[Choice]) -> None:
        """Nothing, if each of them can pick among these routes."""
        for selector in self.selectors:
            selector.check(choices)

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """The first selection that is not empty."""
        for number, selector in enumerate(self.selectors):
            share = 1 / (len(self.selectors) - number)
            try:
                found = yield from selected(selector, query, choices, share=share)
            except MISTAKES:
                raise
            except Exception as error:  # noqa: BLE001 - reported as degraded
                note_degraded(repr(selector), error)
                continue
            if found:
                return found
        return []

    def __repr__(self) -> str:
        return f"CascadeSelector({', '.join(map(repr, self.selectors))})"
