"""`Interpretation`: a question as a query and filters, and what each filter came from."""
# ruff: noqa: RUF001 - Chinese punctuation on purpose

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple

from llama_index.core.vector_stores.types import MetadataFilters

_EDGES: Final = re.compile(
    r"^(?:[\s,;:.!?&，。；：？！、的]|(?:and|but|or|with|by|in|from|of)\b)+"
    r"|(?:[\s,;:&，；：、的]|\b(?:and|but|or|with|by|in|from|of|the|a|an))+$",
    re.IGNORECASE,
)


class Source(NamedTuple):
    """Words of a question that became a filter: their place in it, and the filter in words."""

    start: int
    end: int
    text: str
    filter: str


@dataclass(frozen=True, slots=True)
class Interpretation:
    """A question as a query and filters.

    Attributes:
        question: The question.
        query: The question without what became a filter; empty if nothing else is in it.
        filters: The filters; None without.
        as_of: The day of whose validity the question asks, where something stored has one.
        sources: What each filter came from, in order.
        refused: Sentences on what is no filter because it has no field or value, or several.
    """

    question: str
    query: str
    filters: MetadataFilters | None = None
    as_of: date | None = None
    sources: tuple[Source, ...] = ()
    refused: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the interpretation as JSON."""
        return {
            "question": self.question,
            "query": self.query,
            "filters": None if self.filters is None else self.filters.model_dump(mode="json"),
            "as_of": None if self.as_of is None else self.as_of.isoformat(),
            "sources": [source._asdict() for source in self.sources],
            "refused": list(self.refused),
        }


def without(question: str, sources: Iterable[Source]) -> str:
    """Return what is left of a question without some of its words."""
    pieces, end = [], 0
    for source in sorted(sources):
        pieces.append(question[end : source.start])
        end = max(end, source.end)
    return _EDGES.sub("", " ".join(" ".join([*pieces, question[end:]]).split()))
