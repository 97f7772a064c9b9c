"""Query and response of a `KnowledgeRetriever`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from llama_index.core.schema import QueryType
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, SearchResult
from llama_retrieval_ext.retrievers.kg_rule import PROCESSES_KEY

RULE: Final = "kg_rule"
CASE: Final = "vector"
TEMPLATE: Final = "template"


@dataclass(frozen=True, slots=True)
class RetrievalItem:
    """One item of knowledge.

    Attributes:
        content: The sentence of a rule, or the text of a passage.
        source: ``kg_rule``, ``vector`` or ``template``.
        priority: Priority by the policy; 1 comes first.
        score: Score in [0, 1], given by its side.
        metadata: Metadata of the node; for a rule sentence, also the edges of its ``proof`` as
            text.
    """

    content: str
    source: str
    priority: int
    score: float
    metadata: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, hit: Hit) -> "RetrievalItem":
        """Return a hit of a `KnowledgeRetriever` as an item."""
        metadata = dict(hit.node.metadata)
        if hit.proof:
            metadata["proof"] = [edge.text for edge in hit.proof]
        own = hit.contributions[0].score if hit.contributions else hit.score
        return cls(hit.node.get_content(), hit.source, hit.priority or 1, own or 0.0, metadata)

    def to_dict(self) -> dict[str, object]:
        """Return the item as JSON."""
        return {
            "content": self.content,
            "source": self.source,
            "priority": self.priority,
            "score": self.score,
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True, slots=True, repr=False)
class KnowledgeResponse(SearchResult):
    """Result of a `KnowledgeRetriever`; also a `SearchResult` with the same hits.

    Attributes:
        items: All items, by priority, then score.
        regulations: The items that rules concluded.
        cases: The items from the vector side, without templates.
        query_context: The query, chapter, engineering type, found processes, and whether the rules
            ran.
    """

    items: list[RetrievalItem] = field(default_factory=list)
    regulations: list[RetrievalItem] = field(default_factory=list)
    cases: list[RetrievalItem] = field(default_factory=list)
    query_context: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, result: SearchResult, query_context: Mapping[str, object]) -> "KnowledgeResponse":
        """Return the result of a search as a response."""
        items = [RetrievalItem.of(hit) for hit in result.hits]
        return cls(
            hits=result.hits,
            degraded=result.degraded,
            trace=result.trace,
            details=result.details,
            query=result.query,
            items=items,
            regulations=[item for item in items if item.source == RULE],
            cases=[item for item in items if item.source == CASE],
            query_context={**query_context, "processes": result.details.get("processes", [])},
        )

    def to_dict(self) -> dict[str, object]:
        """Return the response as JSON."""
        return {
            # Not super(): ``slots=True`` replaces the class that super() refers to.
            **SearchResult.to_dict(self),
            "items": [item.to_dict() for item in self.items],
            "regulations": [item.to_dict() for item in self.regulations],
            "cases": [item.to_dict() for item in self.cases],
            "query_context": dict(self.query_context),
        }


CHAPTER_KEY: Final = "chapter"
TYPE_KEY: Final = "engineering_type"


def knowledge_query(
    query: QueryType,
    chapter: str | None = None,
    engineering_type: str | None = None,
    processes: Sequence[str] | None = None,
    context: Mapping[str, object] | None = None,
) -> Query:
    """Return a query with chapter, engineering type and processes in its context, if given."""
    values = {CHAPTER_KEY: chapter, TYPE_KEY: engineering_type}
    own: dict[str, object] = {key: value for key, value in values.items() if value is not None}
    if processes is not None:
        own[PROCESSES_KEY] = [processes] if isinstance(processes, str) else list(processes)
    return Query.of(query).but(context={**(context or {}), **own})


def named(processes: Sequence[str]) -> str:
    """Return processes as query text."""
    return processes if isinstance(processes, str) else ", ".join(map(str, processes))


def is_or_lacks(key: str, value: str) -> MetadataFilters:
    """Return the filter for nodes with this value in a field, or without the field."""
    return MetadataFilters(
        filters=[
            MetadataFilter(key=key, value=value),
            MetadataFilter(key=key, value=None, operator=FilterOperator.IS_EMPTY),
        ],
        condition=FilterCondition.OR,
    )
