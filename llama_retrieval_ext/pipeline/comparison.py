"""Comparison of two explanations: of two queries, or of two retrievers."""

from dataclasses import dataclass
from typing import ClassVar

from llama_retrieval_ext.lazy import Viewed
from llama_retrieval_ext.results import Hit, SearchResult, node_ids


@dataclass(frozen=True, slots=True)
class RankPair:
    """A hit of either result, with its rank in each.

    Attributes:
        hit: The hit of the first result, or else of the second.
        first: Rank in the first result, from 1; None if absent.
        second: Rank in the second result, from 1; None if absent.
    """

    hit: Hit
    first: int | None
    second: int | None

    @property
    def moved(self) -> int | None:
        """Rise in rank from the first result to the second; None if absent in one of them."""
        if self.first is None or self.second is None:
            return None
        return self.first - self.second

    def to_dict(self) -> dict[str, object]:
        """Return the pair as JSON."""
        return {
            "node_id": self.hit.node_id,
            "first": self.first,
            "second": self.second,
            "moved": self.moved,
        }


@dataclass(frozen=True, slots=True, repr=False)
class ExplanationComparison(Viewed):
    """Comparison of two explanations; prints as a table of ranks.

    Attributes:
        first: The explanation whose `compare` was called.
        second: The other explanation.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FixedRetriever
        >>> old = FixedRetriever([("a", 0.9), ("b", 0.5)]).explain("leave")
        >>> new = FixedRetriever([("b", 0.8), ("c", 0.7)]).explain("leave")
        >>> comparison = old.compare(new)
        >>> [(pair.hit.node_id, pair.first, pair.second) for pair in comparison.pairs]
        [('a', 1, None), ('b', 2, 1), ('c', None, 2)]
        >>> comparison.overlap
        0.3333333333333333

    """

    _view: ClassVar[str] = "explanation.comparison"

    first: SearchResult
    second: SearchResult

    @property
    def pairs(self) -> list[RankPair]:
        """All hits: those of the first result in its order, then those only in the second."""
        ranks = [
            {node_id: rank for rank, node_id in enumerate(node_ids(result.hits), start=1)}
            for result in (self.first, self.second)
        ]
        hits = {hit.node_id: hit for hit in (*self.second.hits, *self.first.hits)}
        order = dict.fromkeys((*ranks[0], *ranks[1]))
        return [RankPair(hits[id_], ranks[0].get(id_), ranks[1].get(id_)) for id_ in order]

    @property
    def only_first(self) -> list[str]:
        """Ids of the hits that are only in the first result."""
        return [pair.hit.node_id for pair in self.pairs if pair.second is None]

    @property
    def only_second(self) -> list[str]:
        """Ids of the hits that are only in the second result."""
        return [pair.hit.node_id for pair in self.pairs if pair.first is None]

    @property
    def overlap(self) -> float:
        """Share of common hits among all hits (Jaccard), in ``[0, 1]``; 1 if both are empty."""
        pairs = self.pairs
        return sum(pair.moved is not None for pair in pairs) / len(pairs) if pairs else 1.0

    def to_dict(self) -> dict[str, object]:
        """Return the comparison as JSON."""
        return {
            "queries": [self.first.query, self.second.query],
            "overlap": self.overlap,
            "only_first": self.only_first,
            "only_second": self.only_second,
            "pairs": [pair.to_dict() for pair in self.pairs],
        }

    def __repr__(self) -> str:
        text: str = self._shown("text")
        return text
