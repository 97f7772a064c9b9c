"""Two explanations side by side: of two queries, or by two retrievers."""

from dataclasses import dataclass
from typing import ClassVar

from llama_retrieval_ext.lazy import Viewed
from llama_retrieval_ext.results import Hit, SearchResult, node_ids


@dataclass(frozen=True, slots=True)
class RankPair:
    """A hit of either result, and its rank in each.

    Attributes:
        hit: As the first result has it, else the second.
        first: Its rank in the first result, from 1; None where it is not there.
        second: Its rank in the second.
    """

    hit: Hit
    first: int | None
    second: int | None

    @property
    def moved(self) -> int | None:
        """How many ranks it is further up in the second; None if it is in one only."""
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
    """Two explanations side by side; prints as a table of ranks.

    Attributes:
        first: The one whose `compare` was called.
        second: The other.

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

    _view: ClassVar[str] = "comparison.comparison"

    first: SearchResult
    second: SearchResult

    @property
    def pairs(self) -> list[RankPair]:
        """Every hit of either: those of the first in its order, then those of the second alone."""
        ranks = [
            {node_id: rank for rank, node_id in enumerate(node_ids(result.hits), start=1)}
            for result in (self.first, self.second)
        ]
        hits = {hit.node_id: hit for hit in (*self.second.hits, *self.first.hits)}
        order = dict.fromkeys((*ranks[0], *ranks[1]))
        return [RankPair(hits[id_], ranks[0].get(id_), ranks[1].get(id_)) for id_ in order]

    @property
    def only_first(self) -> list[str]:
        """Ids of the hits that only the first has."""
        return [pair.hit.node_id for pair in self.pairs if pair.second is None]

    @property
    def only_second(self) -> list[str]:
        """Ids of the hits that only the second has."""
        return [pair.hit.node_id for pair in self.pairs if pair.first is None]

    @property
    def overlap(self) -> float:
        """The share of all hits that both have (Jaccard), in ``[0, 1]``; 1 if both are empty."""
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
