"""Query, policy and response of a `KnowledgeRetriever`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Annotated, Final, TypeAlias

from llama_index.core.schema import NodeWithScore, QueryType
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.checks import Part
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import note_degraded
from llama_retrieval_ext.hits import as_hit, ordered
from llama_retrieval_ext.parameters import Count, Range, Share
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Contribution, Hit, SearchResult
from llama_retrieval_ext.retrievers.kg_rule import PROCESSES_KEY, TYPE_KEY
from llama_retrieval_ext.scope import KB_KEY, without_allowed

# Key of the query's context.
CHAPTER_KEY: Final = "chapter"
# Sides of a `KnowledgeRetriever`.
VECTOR_SIDE: Final = "vector"
RULE_SIDE: Final = "rules"
GENERATED: Final = "generated"
# Sources of items.
RULE: Final = "kg_rule"
CASE: Final = "vector"
TEMPLATE: Final = "template"
_PRIORITIES: Final = MappingProxyType({RULE: 1, CASE: 2, TEMPLATE: 3, GENERATED: 4})
Priority: TypeAlias = Annotated[int, Range(least=1, most=len(_PRIORITIES))]
# Share of its score band that a kind of item uses; leaves gaps between bands.
_INSIDE: Final = 0.999


@dataclass(frozen=True, slots=True)
class RetrievalItem(Part):
    """One item of knowledge.

    Attributes:
        content: The sentence of a rule, or the text of a passage.
        source: ``kg_rule``, ``vector``, ``template``, or ``generated`` for a row of LLM-written
            Cypher.
        priority: Priority by the policy, 1 to 4; 1 comes first.
        score: Score in [0, 1], given by its side.
        metadata: Metadata of the node; for a rule sentence, also the edges of its ``proof`` as
            text.

    Raises:
        ConfigurationError: The content is no string, the metadata no mapping, the source unknown,
            or a number out of range.
    """

    content: str
    source: str
    priority: Priority
    score: Share
    metadata: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.source not in _PRIORITIES:
            raise ConfigurationError(
                f"the source of an item is {', '.join(_PRIORITIES)}, got {self.source!r}"
            )

    @classmethod
    def of(cls, hit: Hit) -> "RetrievalItem":
        """Return a hit of a `KnowledgeRetriever` as an item."""
        metadata = without_allowed(hit.node.metadata)
        if hit.proof:
            metadata["proof"] = [edge.text for edge in hit.proof]
        score = hit.contributions[0].score if hit.contributions else hit.score
        return cls(hit.node.get_content(), hit.source, hit.priority or 1, score or 0.0, metadata)

    def to_dict(self) -> dict[str, object]:
        """Return the item as JSON."""
        values = {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}
        return {**values, "metadata": dict(self.metadata)}


@dataclass(frozen=True, slots=True, repr=False)
class KnowledgeResponse(SearchResult):
    """Result of a `KnowledgeRetriever`; also a `SearchResult` with the same hits.

    Attributes:
        items: All items, by priority, then score.
        regulations: The items that rules concluded.
        cases: The items from the vector side, without templates.
        query_context: The query, chapter, engineering type, processes (those that the caller
            passed, else those found in the query), and whether the rules ran.
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
            **{
                attribute.name: getattr(result, attribute.name)
                for attribute in fields(SearchResult)
            },
            items=items,
            regulations=[item for item in items if item.source == RULE],
            cases=[item for item in items if item.source == CASE],
            query_context={
                **query_context,
                "processes": query_context.get("processes") or result.details.get("processes", []),
            },
        )

    def to_dict(self) -> dict[str, object]:
        """Return the response as JSON."""
        return {
            # Not super(): ``slots=True`` replaces the class that super() refers to.
            **SearchResult.to_dict(self),
            **{
                name: [item.to_dict() for item in getattr(self, name)]
                for name in ("items", "regulations", "cases")
            },
            "query_context": dict(self.query_context),
        }


def knowledge_query(
    query: QueryType,
    chapter: str | None = None,
    engineering_type: str | None = None,
    processes: Sequence[str] | None = None,
    context: Mapping[str, object] | None = None,
) -> Query:
    """Return a query with chapter, engineering type and processes in its context, if given."""
    values = {CHAPTER_KEY: chapter, TYPE_KEY: engineering_type}
    chosen: dict[str, object] = {key: value for key, value in values.items() if value is not None}
    if processes is not None:
        chosen[PROCESSES_KEY] = [processes] if isinstance(processes, str) else list(processes)
    return Query.of(query).but(context={**(context or {}), **chosen})


def named(processes: Sequence[str] | None) -> str:
    """Return processes as query text."""
    return processes if isinstance(processes, str) else ", ".join(map(str, processes or ()))


def is_or_lacks(key: str, value: str) -> MetadataFilters:
    """Return the filter for nodes with this value in a field, or without the field."""
    has = MetadataFilter(key=key, value=value)
    lacks = MetadataFilter(key=key, value=None, operator=FilterOperator.IS_EMPTY)
    return MetadataFilters(filters=[has, lacks], condition=FilterCondition.OR)


@dataclass(frozen=True, slots=True)
class KnowledgePolicy(Part):
    """Settings of a `KnowledgeRetriever`.

    Args:
        rule_chapters: Rules run if the chapter name contains one of these (case-insensitive), or if
            no chapter is given.
        priorities: Order of the kinds of items, 1 to 4, 1 first: ``kg_rule``, ``vector`` (cases),
            ``template`` and ``generated`` (rows of an LLM-written statement).
        template_collections: Collections whose passages are templates rather than cases.
        collection_keys: Metadata fields with the collection of a passage; one of them decides.
        chapter_key: Metadata field with the chapter of a case. Cases of other chapters than that of
            the query are left out; a case without the field matches all. None ignores chapters.
        engineering_type_key: The same for the engineering type.
        case_top_k: Maximum number of cases, and of templates.
        case_threshold: Minimum score of a case or a template, in [0, 1].
        candidates: Number of passages to request from the vector side.

    Raises:
        ConfigurationError: A value is out of range.
    """

    rule_chapters: tuple[str, ...] = (
        *("quality", "safety", "emergency"),
        *("质量", "安全", "应急"),
    )
    priorities: Mapping[str, Priority] = field(default_factory=lambda: dict(_PRIORITIES))
    template_collections: tuple[str, ...] = ("templates",)
    collection_keys: tuple[str, ...] = ("collection", KB_KEY)
    chapter_key: str | None = "chapter"
    engineering_type_key: str | None = "engineering_type"
    case_top_k: Count = 3
    case_threshold: Share = 0.6
    candidates: Count = 20

    def __post_init__(self) -> None:
        unknown = set(self.priorities) ^ set(_PRIORITIES)
        if unknown:
            raise ConfigurationError(
                f"priorities has a number for each of {', '.join(_PRIORITIES)}, got "
                f"{dict(self.priorities)}"
            )

    def asks_rules(self, chapter: str | None) -> bool:
        """Return whether rules run for a chapter.

        Examples:
            >>> [KnowledgePolicy().asks_rules(each) for each in ("第五章 安全管理", "Cost")]
            [True, False]

        """
        if chapter is None:
            return True
        name = chapter.casefold()
        return any(chapter.casefold() in name for chapter in self.rule_chapters)

    def is_template(self, metadata: Mapping[str, object]) -> bool:
        """Return whether a passage with this metadata is a template."""
        return any(metadata.get(key) in self.template_collections for key in self.collection_keys)


def items_of(side: str, answer: Sequence[NodeWithScore], policy: KnowledgePolicy) -> list[Hit]:
    """Return the hits of a side with source, priority and score by the policy.

    Scores count as shares in [0, 1]: divided by the best one if that is above 1. A side without
    hits marks the answer degraded.
    """
    scores = [hit.score or 0.0 for hit in answer]
    finite = [score if math.isfinite(score) else 0.0 for score in scores]
    best = max([1.0, *finite])
    shares = [max(0.0, score / best) for score in finite]
    items = [
        _item(side, hit, rank, share, policy)
        for rank, (hit, share) in enumerate(zip(answer, shares, strict=True), start=1)
    ]
    if side == VECTOR_SIDE:
        items = _cases(items, policy)
    if not items and side != GENERATED:
        note_degraded(side, _nothing(side, shares, policy))
    return items


def each_text_once(hits: Sequence[Hit]) -> list[Hit]:
    """Return the first hit of each text, ignoring case and spacing."""
    first: dict[str, Hit] = {}
    for hit in hits:
        first.setdefault(" ".join(hit.node.get_content().split()).casefold(), hit)
    return list(first.values())


def _item(side: str, hit: NodeWithScore, rank: int, share: float, policy: KnowledgePolicy) -> Hit:
    source = GENERATED if side == GENERATED else RULE
    if side == VECTOR_SIDE:
        source = TEMPLATE if policy.is_template(hit.node.metadata) else CASE
    priority = policy.priorities[source]
    lowest = max(policy.priorities.values())
    score = (lowest - priority + _INSIDE * share) / lowest
    changes = {
        "score": score,
        "priority": priority,
        "source": source,
        "contributions": (Contribution(side, rank, share, 1.0, score),),
    }
    return as_hit(hit).model_copy(update=changes)


def _cases(items: Sequence[Hit], policy: KnowledgePolicy) -> list[Hit]:
    """Return the best cases and templates, limited by the policy."""
    kept: list[Hit] = []
    for source in (CASE, TEMPLATE):
        near = [
            item
            for item in items
            if item.source == source
            and (item.contributions[0].score or 0.0) >= policy.case_threshold
        ]
        kept += ordered(near)[: policy.case_top_k]
    return kept


def _nothing(side: str, shares: Sequence[float], policy: KnowledgePolicy) -> str:
    if side == VECTOR_SIDE and shares:
        return (
            f"found nothing with a score of {policy.case_threshold:g} or more; the best of "
            f"{len(shares)} has {max(shares):.3g}"
        )
    if side == RULE_SIDE:
        return "found nothing: the query names nothing of the graph, or no rule applies to it"
    return "found nothing"
