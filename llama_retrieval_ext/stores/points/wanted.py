"""`Wanted`: what a search of an engine of the Qdrant family is told."""

from dataclasses import dataclass

from llama_retrieval_ext.stores.backend import Search
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
