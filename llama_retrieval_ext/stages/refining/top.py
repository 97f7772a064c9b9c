"""The cut."""

from collections.abc import Sequence
from dataclasses import dataclass

from llama_retrieval_ext.execution.effects import Plan
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

    k: int

    def __post_init__(self) -> None:
        check_top_k(self.k)

    def refine(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:  # noqa: ARG002
        """The plan for the first ``k``."""
        yield from ()
        return list(hits[: self.k])
