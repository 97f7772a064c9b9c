"""`Wanted`: what a search of an engine of the Qdrant family is told, and what can be searched."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from llama_retrieval_ext.stores.backend import Found, Search
from llama_retrieval_ext.stores.points.clauses import Clause
from llama_retrieval_ext.stores.points.conditions import clause_of


@dataclass(frozen=True, slots=True)
class Wanted:
    """What every kind of search is told besides what to look for.

    Attributes:
        top_k: How many to return, at least 1.
        clause: What each must match; None for everything.
        corpus: The nodes that the rarity of terms is measured on; None for all.
    """

    top_k: int
    clause: Clause | None = None
    corpus: Clause | None = None


def wanted(search: Search) -> Wanted:
    """What a search of a backend asks for.

    Raises:
        UnsupportedFilterError: The engine cannot evaluate its condition.
    """
    condition, scope = search.condition, search.scope
    return Wanted(
        search.top_k,
        None if condition is None else clause_of(condition),
        None if scope is None else clause_of(scope.condition),
    )


class Searcher(Protocol):
    """Asks an engine. Rankings come best first, ties by node id; an empty store gives []."""

    def dense(self, embedding: Sequence[float], wanted: Wanted) -> list[Found]:
        """Nearest nodes to an embedding."""
        ...

    def keyword(self, text: str, wanted: Wanted) -> list[Found]:
        """Nodes that share terms with a text, by BM25; each has a score above 0."""
        ...

    def both(
        self, embedding: Sequence[float], text: str, *, dense: Wanted, keyword: Wanted
    ) -> tuple[list[Found], list[Found]]:
        """Both of the above in one request."""
        ...

    def diverse(
        self, embedding: Sequence[float], wanted: Wanted, *, lambda_mult: float, candidates: int
    ) -> list[Found]:
        """Near nodes that do not repeat each other, in the order picked."""
        ...
