"""`FilteredEngineSearch`: search for engines that evaluate filters only in part."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.execution.plan import Steps
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.stores.engine.backend import Candidate
from llama_retrieval_ext.stores.engine.search import EngineSearch, NativeSearch

F = TypeVar("F")
H = TypeVar("H")
S = TypeVar("S", bound="FilteredSearch")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredSearch(NativeSearch):
    """One search, with the condition that is checked here; None if the engine checks all."""

    condition: Condition | None = None


class FilteredEngineSearch(EngineSearch[F, S, H], Generic[F, S, H]):
    """Search that requests more hits until enough satisfy the condition."""

    scoped_rarity: ClassVar[bool] = False

    @abstractmethod
    def page(self, search: S, limit: int) -> Steps[list[H]]:
        """Return at most `limit` hits of a search, with their nodes."""

    @abstractmethod
    def node(self, hit: H) -> BaseNode:
        """Return the node of a hit."""

    @abstractmethod
    def too_few(self, search: S) -> UnsupportedFilterError:
        """Return the error for a search with too few hits that satisfy the condition."""

    def pages(
        self, searches: Sequence[S], limits: Sequence[int], *, with_nodes: bool
    ) -> Steps[list[list[H]]]:
        """Return the hits of each search; request more if too few satisfy its condition."""
        del with_nodes  # the condition needs them
        pages = []
        for search, limit in zip(searches, limits, strict=True):
            pages.append((yield from self._filtered_page(search, limit)))
        return pages

    def candidate(self, hit: H, score: float) -> Candidate:
        """Return the candidate of a hit."""
        return Candidate(self.node(hit), score)

    def _filtered_page(self, search: S, limit: int) -> Steps[list[H]]:
        """Return the best hits that satisfy the condition; raise if `most_hits` is too small."""
        size = min(limit, self.most_hits)
        while True:
            hits = yield from self.page(search, size)
            kept = [hit for hit in hits if self._passes(search, hit)]
            if len(kept) >= limit or len(hits) < size:
                return kept[:limit]
            if size == self.most_hits:
                break
            size = min(4 * size, self.most_hits)
        if len(kept) < search.top_k:
            raise self.too_few(search)
        return kept

    def _passes(self, search: S, hit: H) -> bool:
        return search.condition is None or matches(search.condition, self.node(hit).metadata)
