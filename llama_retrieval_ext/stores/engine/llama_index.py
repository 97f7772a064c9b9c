"""Search of collections that LlamaIndex's integrations wrote, on engines that filter in part."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ConfigurationError, UnsupportedFilterError
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.stores.engine.backend import Candidate
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.search import EngineSearch, NativeSearch

H = TypeVar("H")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefilteredSearch(NativeSearch, Generic[H]):
    """A search whose hits may violate its condition, and are checked here.

    Attributes:
        page: Returns at most so many hits, with their nodes.
        condition: The condition to check; None if the engine evaluates it.
    """

    page: Callable[[int], Steps[list[H]]]
    condition: Condition | None = None


class PrefilteredEngineSearch(EngineSearch[Condition, PrefilteredSearch[H], H], Generic[H]):
    """Searches that request more hits until enough satisfy the condition."""

    scoped_rarity: ClassVar[bool] = False
    where: str  # the collection, for messages

    @abstractmethod
    def node(self, hit: H) -> BaseNode:
        """Return the node of a hit."""

    def compile(self, condition: Condition) -> Condition:
        """Return the condition unchanged: its compiled form depends on the collection."""
        return condition

    def pages(
        self, searches: Sequence[PrefilteredSearch[H]], *, with_nodes: bool
    ) -> Steps[list[list[H]]]:
        """Return the hits of each search that satisfy its condition."""
        del with_nodes  # the condition needs them
        pages = []
        for search in searches:
            pages.append((yield from self._page(search)))  # noqa: PERF401 - no generator there
        return pages

    def candidate(self, hit: H, score: float) -> Candidate:
        """Return the candidate of a hit."""
        return Candidate(self.node(hit), score)

    def _page(self, search: PrefilteredSearch[H]) -> Steps[list[H]]:
        """Return the best hits that satisfy the condition; raise if `most_hits` is too small."""
        size, condition = min(search.top_k, self.most_hits), search.condition
        while True:
            hits = yield from search.page(size)
            kept = hits if condition is None else self._matching(hits, condition)
            if len(kept) >= search.top_k or len(hits) < size:
                return kept[: search.top_k]
            if size == self.most_hits:
                break
            size = min(4 * size, self.most_hits)
        if condition is None:
            raise ConfigurationError(
                f"{self.where} returns at most {self.most_hits} hits at once, top_k is "
                f"{search.top_k}"
            )
        raise UnsupportedFilterError(
            f"{condition} cannot be decided by the fields of {self.where}, and too few "
            f"of its best {self.most_hits} nodes satisfy it; filter by strings, or copy the "
            "nodes into a store opened by URL, where the engine decides",
            "",
        )

    def _matching(self, hits: list[H], condition: Condition) -> list[H]:
        return [hit for hit in hits if matches(condition, self.node(hit).metadata)]
