"""Selectors one after the other, the cheap ones first."""

from collections.abc import Sequence

from llama_retrieval_ext.arguments import of_type
from llama_retrieval_ext.composite.routing.selector import Choice, Selection, Selector, selected
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.degraded import note_degraded
from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.execution.legs import MISTAKES
from llama_retrieval_ext.execution.steps import step
from llama_retrieval_ext.query import Query


class CascadeSelector(Selector):
    """The selection of the first selector that does not abstain.

    One that fails counts as one that abstains, and the answer is marked degraded. When all abstain,
    so does the cascade, and the router takes its fallback.

    Args:
        selectors: In the order in which they are asked, for instance rules, embedding, LLM.

    Raises:
        ConfigurationError: There is none.
    """

    def __init__(self, *selectors: Selector) -> None:
        if not selectors:
            raise ConfigurationError("a cascade needs at least one selector")
        self.selectors = tuple(of_type(each, Selector, "a selector") for each in selectors)

    def check(self, choices: Sequence[Choice]) -> None:
        """Nothing, if each of them can pick among these routes."""
        for selector in self.selectors:
            selector.check(choices)

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """The first selection that is not empty."""
        for selector in self.selectors:
            try:
                found = yield from step(repr(selector), selected(selector, query, choices))
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
