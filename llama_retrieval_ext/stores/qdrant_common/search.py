"""Searches shared by Qdrant and Qdrant Edge."""

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
    """A point returned by a search."""

    @property
    def score(self) -> float:
        """The engine's score."""
        ...

    @property
    def payload(self) -> dict[str, Any] | None:
        """The requested part of the stored payload."""
        ...


P = TypeVar("P", bound=Point)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSearch(NativeSearch):
    """One search, with the classes of the client.

    Attributes:
        query: A vector, or a fusion of legs.
        using: Name of the vectors to search; None if the query names them.
        filter: Filter that every point matches; None for no filter.
        params: Search params; None for the engine's default.
        legs: Searches to fuse, each with its own filter.
    """

    query: Any
    using: str | None = None
    filter: Any = None
    params: Any = None
    legs: tuple["PointSearch", ...] = ()


class PointsSearch(EngineSearch[F, PointSearch, P], Generic[F, P]):
    """Searches of points in the format of this package."""

    @abstractmethod
    def fusion(self, recipe: Recipe) -> object:
        """Return the client's query for a fusion."""

    def fused_search(
        self, near: PointSearch, sharing: PointSearch, how: FusedSearch, *, top_k: int
    ) -> PointSearch:
        """Return the engine's fusion; each leg applies its filter before it limits candidates."""
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
    """Return the terms of a query with their counts; None without terms."""
    terms = tokenizer.query_terms(text)
    terms.pop(NO_TERM, None)
    return (list(terms), [float(count) for count in terms.values()]) if terms else None
