"""A few hits of each source."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Protocol, TypeVar

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Query, source_of_node
from llama_retrieval_ext.ranking import Hit
from llama_retrieval_ext.stages.algebra.refine import Refine


class HasNode(Protocol):
    """Whatever was found."""

    @property
    def node(self) -> BaseNode:
        """The node."""
        ...


H = TypeVar("H", bound=HasNode)


@dataclass(frozen=True, slots=True)
class Collapse(Refine):
    """The best hits of each source; what ranks behind them is left out, order and scores stay.

    The source of a hit is the file that its document came from (``file_path`` in its metadata), so
    that the pages of a PDF count as one; a document without one is its own source.

    As a stage it can only leave out, so let more hits come in than shall come out. A retriever over
    a store that is given it as ``collapse`` looks for more by itself.

    Args:
        size: How many hits of a source stay, at least 1.
        by: A metadata field to go by instead: of each string or number in it so many hits stay.

    A node without a source, or with anything else in the field, repeats nothing and stays. The
    same source in another scope is another source.

    Raises:
        ConfigurationError: ``size`` is below 1, or ``by`` is empty.

    Examples:
        >>> Collapse(2, by="author")
        Collapse(size=2, by='author')

    """

    fast: ClassVar[bool] = True
    size: int = 1
    _: KW_ONLY
    by: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise ConfigurationError(f"size must be a whole number of at least 1, got {self.size}")
        if self.by is not None and not self.by:
            raise ConfigurationError(
                "by must be the name of a metadata field, got ''; to go by source leave it out"
            )

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ARG002
        """Return the hits that stay."""
        return self.of(hits)

    def of(self, ranking: Iterable[H]) -> list[H]:
        """What stays of a ranking.

        Args:
            ranking: Best first.
        """
        seen: Counter[Hashable] = Counter()
        kept = []
        for each in ranking:
            group = self._group(each.node)
            seen[group] += 1
            if seen[group] <= self.size:
                kept.append(each)
        return kept

    def _group(self, node: BaseNode) -> Hashable:
        alone = (node.node_id,)  # which equals no document, string or number
        if self.by is None:
            return source_of_node(node) or alone
        value = node.metadata.get(self.by)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return alone
        return alone if isinstance(value, float) and math.isnan(value) else value
