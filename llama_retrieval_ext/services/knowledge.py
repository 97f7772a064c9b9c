"""`KnowledgeService`: answers, insights, related entities and timelines."""

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from datetime import UTC, date, datetime, time
from functools import cached_property
from typing import Final, Self, TypeAlias

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import QueryType

from llama_retrieval_ext.capabilities.factory import CapabilityFactory
from llama_retrieval_ext.capabilities.insight import InsightGenerator, InsightReport
from llama_retrieval_ext.capabilities.memory import MemoryManager
from llama_retrieval_ext.capabilities.memory_storage import memory_filters
from llama_retrieval_ext.capabilities.rag import RAGAnswer, RAGGenerator
from llama_retrieval_ext.checks import check_count, checked_call, declared_arguments, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import asynchronous, blocking, called, within
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.retrieval import hits_of
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import GraphNode
from llama_retrieval_ext.graph.entity_linking import EntityLinker, NameFinder, names_found
from llama_retrieval_ext.graph.expansion import plan_expand
from llama_retrieval_ext.graph.passage_links import DOCUMENT_LABEL
from llama_retrieval_ext.graph.phrases import phrase_spans, words
from llama_retrieval_ext.pipeline.retriever import listed
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, ResultList
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.services.scoped import ScopedService
from llama_retrieval_ext.text.normalization import dominant_script, normal
from llama_retrieval_ext.text.segmentation import chinese_persons

_PASSAGES_PER_EVENT: Final = 4
# First and last time, both inclusive; None for no bound.
_Range: TypeAlias = tuple[datetime | None, datetime | None]


@dataclass(frozen=True, slots=True)
class RelatedEntity:
    """An entity that is related to a subject.

    Attributes:
        name: Its name.
        hops: Distance from the subject in the graph; None for an entity from passages.
        path: The path, by node ids; empty for an entity from passages.
        passages: Ids of the passages that name it; empty for an entity from the graph.
    """

    name: str
    hops: int | None = None
    path: str = ""
    passages: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the entity as JSON."""
        return {**asdict(self), "passages": list(self.passages)}


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """A passage or memory with its time.

    Attributes:
        timestamp: Its time; aware.
        text: The text of the passage or memory.
        node_id: Id of the passage or memory.
        source: ``document`` or ``memory``.
    """

    timestamp: datetime
    text: str
    node_id: str
    source: str

    def to_dict(self) -> dict[str, object]:
        """Return the event as JSON."""
        return {**asdict(self), "timestamp": self.timestamp.isoformat()}


@declared_arguments
@dataclass(frozen=True)
class KnowledgeService(ScopedService):
    """Answers, insights, related entities and timelines from documents.

    A question, topic or subject is a text, or a `Query` with filters and a time limit.

    Args:
        retriever: Finds passages; one of this package, or any LlamaIndex retriever.
        rag_generator: Answers questions.
        insight_generator: Generates insights.
        memory_manager: Recalls memories for timelines; None for documents only.
        graph: Graph of entities, from `open_graph`; None to take entities from passages.
        ner: Finds names in queries and passages; None for capitalised words, titles in Chinese
            quotation marks and, with the extra ``zh``, Chinese names of persons.
        date_field: The metadata field with the date of a document, in ISO form.
        scope: As for `ScopedService`.
        require_scope: As for `ScopedService`.

    Raises:
        ConfigurationError: An argument is of another type.

    Examples:
        >>> from llama_index.core import Document, MockEmbedding
        >>> from llama_retrieval_ext import KnowledgeBase
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     _ = kb.add([Document(text="Ada Stone checked the Pump House.", id_="log")])
        ...     factory = CapabilityFactory.of(kb, llm=lambda prompt: "Ada Stone did [1].")
        ...     knowledge = KnowledgeService.of(factory)
        ...     answer = knowledge.ask("Who checked the pump house?")
        ...     print(answer.text, [each.name for each in knowledge.related("Ada Stone")])
        Ada Stone did [1]. ['Pump House']

    """

    retriever: BaseRetriever
    rag_generator: RAGGenerator
    insight_generator: InsightGenerator
    _: KW_ONLY
    memory_manager: MemoryManager | None = None
    graph: GraphBackend | None = None
    ner: NameFinder | None = None
    date_field: str = "date"

    @classmethod
    @checked_call
    def of(
        cls, factory: CapabilityFactory, *, date_field: str = "date", scope: Scope | None = None
    ) -> Self:
        """Return the service over a factory's parts, with its graph if it has one.

        Raises:
            ConfigurationError: A part is missing.
        """
        parts = factory.parts
        return cls(
            factory.best_retriever(),
            factory.create_rag_generator(),
            factory.create_insight_generator(),
            memory_manager=factory.create_memory_manager(),
            graph=None if parts.graph is None else parts.graph.backend,
            ner=factory.ner,
            date_field=date_field,
            scope=scope,
            require_scope=parts.requires_scope,
        )

    @blocking
    def ask(
        self, question: QueryType, *, language: str | None = None, scope: Scope | None = None
    ) -> Plan[RAGAnswer]:
        """Return the answer to a question, with checked citations.

        Args:
            question: The question.
            language: Language of this package's own texts; None for that of the question.
            scope: Narrows the service's scope.

        Raises:
            GenerationError: The model fails, times out, or returns nothing.
            DeadlineExceededError: The time ran out.
        """
        rag, within_scope = self.rag_generator, self._within(scope)
        return called(rag.generate, rag.agenerate, question, language=language, scope=within_scope)

    aask = asynchronous(ask)

    @blocking
    def insights(
        self, topic: QueryType, *, top_k: int = 20, scope: Scope | None = None
    ) -> Plan[InsightReport]:
        """Return insights about a topic, each with the ids of its passages.

        No model is called if there are no passages.

        Args:
            topic: The topic.
            top_k: Number of passages to read.
            scope: Narrows the service's scope.

        Raises:
            GenerationError: The model returned no usable answer.
            DeadlineExceededError: The time ran out.
        """
        query = self._query(topic, scope)
        return within("insights", self._insights(query, top_k), query.timeout_s)

    ainsights = asynchronous(insights)

    @blocking
    def related(
        self, subject: QueryType, *, top_k: int = 10, max_hops: int = 2, scope: Scope | None = None
    ) -> Plan[ResultList[RelatedEntity]]:
        """Return the entities that are related to a subject, nearest first.

        They come from the graph if it has the subject; else they are the names in the ``top_k``
        passages about it, most frequent first. Filters apply to passages.

        Args:
            subject: An entity, or a question that names one.
            top_k: Number of entities, at least 1.
            max_hops: Maximum distance in the graph; two entities in the same passage are two hops
                apart.
            scope: Narrows the service's scope.

        Raises:
            ConfigurationError: A number is below 1.
            MissingDependencyError: There is a graph, and the extra ``graph`` is not installed; or
                the subject is Chinese, and the extra ``zh`` is not installed.
        """
        query = self._query(subject, scope)
        related = listed(self._related(query, top_k, max_hops))
        return within("related", related, query.timeout_s)

    arelated = asynchronous(related)

    @blocking
    def timeline(
        self,
        topic: QueryType,
        *,
        start: date | None = None,
        end: date | None = None,
        top_k: int = 20,
        scope: Scope | None = None,
    ) -> Plan[ResultList[TimelineEvent]]:
        """Return dated passages and memories about a topic, oldest first.

        Passages without a date are skipped; dates without a time zone are in UTC.

        Args:
            topic: The topic.
            start: First day or time, inclusive; None for no bound.
            end: Last day or time, inclusive; None for no bound.
            top_k: Number of most relevant passages, and likewise of memories.
            scope: Narrows the service's scope.

        Raises:
            ConfigurationError: ``top_k`` is below 1, or the time ends before it begins.
        """
        query = self._query(topic, scope)
        first, last = _moment(start, time.min), _moment(end, time.max)
        if first and last and last < first:
            raise ConfigurationError(f"the time ends before it begins: {first} to {last}")
        events = listed(self._events(query, (first, last), top_k))
        return within("timeline", events, query.timeout_s)

    atimeline = asynchronous(timeline)

    def _query(self, query: QueryType, scope: Scope | None) -> Query:
        return Query.of(query).but(scope=self._within(scope))

    @cached_property
    def _linker(self) -> EntityLinker | None:
        return None if self.graph is None else EntityLinker(self.graph, ner=self.ner)

    def _passages(self, query: Query, top_k: int) -> Plan[list[Hit]]:
        return hits_of(self.retriever, query, top_k=check_count(top_k, "top_k"))

    def _insights(self, query: Query, top_k: int) -> Plan[InsightReport]:
        hits = yield from listed(self._passages(query, top_k))
        if not hits:
            degraded = [*map(str, hits.degraded)]
            return InsightReport(insights=[], degraded=degraded, hints=[*hits.hints])
        insights, focus = self.insight_generator, query.query_str
        return (yield from called(insights.generate, insights.agenerate, hits, focus=focus))

    def _related(self, query: Query, top_k: int, max_hops: int) -> Plan[list[RelatedEntity]]:
        check_count(top_k, "top_k")
        check_count(max_hops, "max_hops")
        related: list[RelatedEntity] = []
        if self._linker is not None:
            related = yield from related_in_graph(
                self._linker, query.query_str, max_hops=max_hops, scope=query.scope
            )
        if not related:
            hits = yield from self._passages(query, top_k)
            related = related_in_passages(hits, query.query_str, ner=self.ner)
        return related[:top_k]

    def _events(self, query: Query, during: _Range, top_k: int) -> Plan[list[TimelineEvent]]:
        hits = yield from self._passages(query, _PASSAGES_PER_EVENT * check_count(top_k, "top_k"))
        events = self._dated(hits, during)[:top_k]
        manager = self.memory_manager
        if manager is not None:
            dated = query.but(filters=memory_filters(None, *during))
            memories = yield from called(
                manager.retrieve, manager.aretrieve, dated, top_k=top_k, scope=dated.scope
            )
            events += [TimelineEvent(m.timestamp, m.text, m.id, "memory") for m in memories]
        return sorted(events, key=lambda event: (event.timestamp, event.node_id))

    def _dated(self, hits: Sequence[Hit], during: _Range) -> list[TimelineEvent]:
        first, last = during
        dated = [(_date_of(hit.node.metadata.get(self.date_field)), hit) for hit in hits]
        return [
            TimelineEvent(moment, hit.node.get_content(), hit.node_id, "document")
            for moment, hit in dated
            if moment is not None and (first or moment) <= moment <= (last or moment)
        ]


def _moment(day: date | None, at: time) -> datetime | None:
    """Return the start or end of a day as a datetime; a datetime is kept."""
    if day is None:
        return None
    of_type(day, date, "start and end")
    if isinstance(day, datetime):
        return day if day.tzinfo is not None else day.replace(tzinfo=UTC)
    return datetime.combine(day, at, UTC)


def _date_of(value: object) -> datetime | None:
    if isinstance(value, date):
        return _moment(value, time.min)
    try:
        return _moment(datetime.fromisoformat(str(value)), time.min)
    except ValueError:
        return None


_MOST_NODES: Final = 1_000


def related_in_graph(
    linker: EntityLinker, subject: str, *, max_hops: int, scope: Scope | None
) -> Plan[list[RelatedEntity]]:
    """Return the plan for the entities around those that a subject names, nearest first."""
    graph: GraphBackend = linker.graph
    linked = yield from linker.plan_link(subject, scope=scope)
    seeds = [entity.node_id for entity in linked]
    if not seeds:
        linker.note_unnamed(subject, scope=scope)
        return []
    expansion = yield from plan_expand(
        graph, seeds, max_hops=max_hops, limit=_MOST_NODES, scope=scope
    )
    nodes: dict[str, GraphNode] = yield graph.plan_nodes(list(expansion), scope=scope)
    return [
        RelatedEntity(nodes[id_].name, hops, str(expansion.path(id_)))
        for id_, hops in expansion.distances.items()
        if hops
        and (node := nodes.get(id_)) is not None
        and not (node.is_passage or node.label == DOCUMENT_LABEL)
    ]


def related_in_passages(
    hits: Sequence[Hit], subject: str, *, ner: NameFinder | None
) -> list[RelatedEntity]:
    """Return the names in the passages that name a subject, most frequent first.

    Names in the subject are excluded. Without ``ner`` names are capitalised words, but not numbers,
    codes and words that only begin a sentence or line; titles in Chinese quotation marks; and, for
    a Chinese subject, persons.

    Raises:
        MissingDependencyError: The subject is Chinese, and the extra ``zh`` is not installed.
    """
    is_chinese = dominant_script(subject) == "han"
    find = ner or (_chinese_names if is_chinese else _capitalised_names)
    subjects = {words(name) for name in names_found(find, subject)} or {words(subject)}
    named: dict[str, tuple[str, list[str]]] = {}
    for hit in hits:
        text = hit.node.get_content()
        spoken = words(text)
        if any(name in spoken for name in subjects):
            for name in names_found(find, text):
                if not any(words(name) in name_words for name_words in subjects):
                    named.setdefault(words(name), (name, []))[1].append(hit.node_id)
    by_count = sorted(named.values(), key=lambda counted: (-len(counted[1]), counted[0]))
    return [RelatedEntity(name, passages=tuple(dict.fromkeys(ids))) for name, ids in by_count]


# Numbers, dates, amounts and ids of tickets.
_CODE: Final = re.compile(r"(?<![\w-])[\w-]*\d[\w.,/:-]*")
_CODE_HERE: Final = "•"
_THEN_CODE: Final = re.compile(rf"\s*{_CODE_HERE}")


def _chinese_names(text: str) -> list[str]:
    return [*_capitalised_names(text), *dict.fromkeys(chinese_persons(text))]


def _capitalised_names(text: str) -> list[str]:
    """Return the names in a text, in its spelling."""
    text = normal(_CODE.sub(_CODE_HERE, text))
    names: dict[str, str] = {}
    for phrase, start, end in phrase_spans(text):
        if phrase not in names and _is_name(text, start, end):
            names[phrase] = text[start:end]
    return [names[phrase] for phrase in sorted(names)]


def _is_name(text: str, start: int, end: int) -> bool:
    """Return False for a word that begins a sentence or line, stands at a code, or is lower-case.

    Several capitalised words are a name anywhere.
    """
    if " " in text[start:end]:
        return True
    while start and text[start - 1] in " \t\"'“(":
        start -= 1
    is_inside = start > 0 and text[start - 1] not in f"\n.!?:;#*->|{_CODE_HERE}"
    return is_inside and _THEN_CODE.match(text, end) is None
