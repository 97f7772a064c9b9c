"""Searches of points, shared by Qdrant and Qdrant Edge."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from llama_retrieval_ext.stores.engine.backend import Candidate
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
from llama_retrieval_ext.stores.engine.search import EngineSearch, NativeSearch
from llama_retrieval_ext.stores.qdrant_common.config import Recipe, recipe_of
from llama_retrieval_ext.stores.qdrant_common.points import NO_TERM, NODE, Weighed
from llama_retrieval_ext.text.tokenizer import Tokenizer

F = TypeVar("F")


class Point(Protocol):
    """A point that was found."""

    @property
    def score(self) -> float:
        """The engine's score."""
        ...

    @property
    def payload(self) -> dict[str, Any] | None:
        """What is stored with it, as far as requested."""
        ...


P = TypeVar("P", bound=Point)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSearch(NativeSearch):
    """One search, in the client's classes.

    Attributes:
        query: A vector, or a fusion of legs.
        using: Name of the vectors to search; None if the query names them.
        filter: What each point must match; None for everything.
        params: How to search; None for the engine's default.
        legs: What a fusion fuses, each with its own filter.
    """

    query: Any
    using: str | None = None
    filter: Any = None
    params: Any = None
    legs: tuple["PointSearch", ...] = ()


class PointsSearch(EngineSearch[F, PointSearch, P], Generic[F, P]):
    """Searches of points as this package stores them."""

    @abstractmethod
    def fusion(self, recipe: Recipe) -> object:
        """Return the client's query for a fusion."""

    def fused_search(
        self, near: PointSearch, sharing: PointSearch, how: FusedSearch, *, top_k: int
    ) -> PointSearch:
        """Return the engine's fusion; each leg has its filter, before its candidates count."""
        recipe = recipe_of(how)
        return PointSearch(
            query=self.fusion(recipe),
            top_k=top_k,
            score=lambda score: recipe.factor * score,
            spare=2,
            legs=(near, sharing),
        )

    def raw_scores(self, hits: Sequence[P]) -> list[float]:
        """Return the engine's scores."""
        return [hit.score for hit in hits]

    def candidate(self, hit: P, score: float) -> Candidate:
        """Return the candidate of a point."""
        return Candidate.stored((hit.payload or {})[NODE], score)


def query_weights(text: str, tokenizer: Tokenizer) -> Weighed | None:
    """Return the sparse vector of a query: its terms, and how often each occurs; None without."""
    terms = tokenizer.query_terms(text)
    terms.pop(NO_TERM, None)
    return (list(terms), [float(count) for count in terms.values()]) if terms else None
