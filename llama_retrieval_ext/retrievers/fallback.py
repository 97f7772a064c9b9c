"""Retriever that tries several retrievers in order."""

from collections.abc import Sequence

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import current_context
from llama_retrieval_ext.execution.legs import Ask, Leg, ask
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.hits import as_hit
from llama_retrieval_ext.parameters import Count
from llama_retrieval_ext.pipeline.branches import chosen_names, unique_legs
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import in_order
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.scope import Scope


class FallbackRetriever(Retriever):
    """Retriever that returns the first answer with enough hits; later ones are not called.

    A retriever that fails counts as one that found nothing, and the answer is marked degraded. If
    none finds enough, the longest answer is returned; ties go to the earlier one. Every path gets
    the same scope and filters. Answers are never mixed, because their scores may not be comparable.

    Args:
        retrievers: Retrievers in the order of trial; at least two. A `Leg` sets its own timeout and
            retries.
        enough: Number of hits that are enough, at least 1.
        top_k: Number of hits if the query sets none; None for all.
        filters: Conditions on metadata that every hit satisfies, on every path.
        scope: Scope that limits every query, on every path.
        name: Name in traces.

    Raises:
        ConfigurationError: There are fewer than two retrievers, or ``enough`` is below 1.
        TooFewLegsError: Every retriever failed.
    """

    def __init__(
        self,
        *retrievers: BaseRetriever | Leg,
        enough: Count = 1,
        top_k: int | None = None,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        name: str = "fallback",
    ) -> None:
        super().__init__(top_k=top_k, filters=filters, scope=scope, name=name)
        if len(retrievers) < 2:  # noqa: PLR2004 - a fallback is a second one
            raise ConfigurationError(
                f"a fallback needs at least two retrievers, got {len(retrievers)}; "
                "write them one after the other: FallbackRetriever(first, second)"
            )
        self.legs = unique_legs(retrievers)
        self.enough = enough

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """Retrievers in the order of trial."""
        return [leg.retriever for leg in self.legs]

    @property
    def leg_names(self) -> list[str | None]:
        """Given names of the legs."""
        return chosen_names(self.legs)

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Run one retriever after another until one finds enough."""
        child = self._for_children(query)
        longest: list[NodeWithScore] | None = None
        chosen = ""
        for leg in self.legs:
            # The last one must answer if no other one did.
            must = int(leg is self.legs[-1] and longest is None)
            rankings = yield from ask({leg.name: Ask(leg, child)}, min_success=must)
            answer = rankings.get(leg.name)
            if answer is not None and (longest is None or len(answer) > len(longest)):
                longest, chosen = answer, leg.name
            if longest is not None and len(longest) >= self.enough:
                break
        trace = current_context().trace
        if trace is not None:
            trace.notes["answered_by"] = chosen
        return in_order([as_hit(hit, source=chosen) for hit in longest or ()])[: query.top_k]
