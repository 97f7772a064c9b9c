"""Routes about leave, code and food, and selectors that pick what they are made with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.schema import QueryBundle
from llama_index.core.tools import ToolMetadata

from llama_retrieval_ext import Query, Route, SearchResult
from llama_retrieval_ext.retrievers import Choice, Selection, Selector
from llama_retrieval_ext.testing import FixedRetriever


@dataclass
class Picks(Selector):
    """Picks these, or fails."""

    found: Sequence[Selection | str] | Exception | None

    def select(self, query: Query, choices: Sequence[Choice]) -> list[Selection]:
        if isinstance(self.found, Exception):
            raise self.found
        assert self.found is not None, "a mistake of its author"
        return [Selection(each) if isinstance(each, str) else each for each in self.found]


class TheirPicks(BaseSelector):
    """A LlamaIndex selector that picks these places, counted from 0."""

    def __init__(self, *places: int) -> None:
        self.places = places

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        pass

    def _select(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        picks = [SingleSelection(index=place, reason=f"pick {place}") for place in self.places]
        return SelectorResult(selections=picks)

    async def _aselect(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        return self._select(choices, query)


def routes() -> dict[str, Route]:
    return {
        name: Route(FixedRetriever([(name, 0.9), ("shared", 0.5)], name=name), description)
        for name, description in (
            ("leave", "annual leave and sick leave"),
            ("code", "functions and classes"),
            ("food", "the canteen and its lunch"),
        )
    }


def names(result: SearchResult) -> list[object]:
    listed = result.details["routes"]
    assert isinstance(listed, list)
    return [route["name"] for route in listed]


CHOICES = [
    Choice("leave", "annual leave and sick leave"),
    Choice("code", "functions and classes of the code"),
    Choice("food", "canteen lunch and dinner"),
]


Selected = Callable[..., list[Selection]]
