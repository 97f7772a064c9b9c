"""The cut."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from llama_retrieval_ext.query import Query, check_top_k
from llama_retrieval_ext.ranking import Hit
from llama_retrieval_ext.stages.algebra.refine import Refine


@dataclass(frozen=True, slots=True)
class Top(Refine):
    """The first hits of a ranking.

    Args:
        k: How many, at least 1.

    Raises:
        ConfigurationError: ``k`` is below 1.

    Examples:
        >>> Top(10)
        Top(k=10)

    """

    fast: ClassVar[bool] = True
    k: int

    def __post_init__(self) -> None:
        check_top_k(self.k)

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ARG002
        """Return the first ``k``."""
        return list(hits[: self.k])
