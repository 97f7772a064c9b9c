"""Memories as nodes of a knowledge base or a vector store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.schema import BaseNode, MetadataMode, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.dates import holds, instant
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.execution.drivers import called
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.filter_syntax import as_metadata_filters
from llama_retrieval_ext.filters import SCOPE_KEYS, AllOf, parse_filters
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.conversations import (
    CONTEXT_KEY,
    DATE_KEY,
    WINDOW,
    context_of,
    searched_with_context,
)
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.query import Query, reworded
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.single_search import VectorRetriever
from llama_retrieval_ext.retrievers.store_retriever import StoreRetriever, checked_hits
from llama_retrieval_ext.scope import (
    ALLOWED_KEY,
    KB_KEY,
    SESSION_KEY,
    SPEAKER_KEY,
    TENANT_KEY,
    TIME_KEY,
    TURN_KEY,
    Scope,
    check_principals,
    isolates,
)
from llama_retrieval_ext.stages.decay import with_holding
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate
from llama_retrieval_ext.stores.engine.search import EngineBackend
from llama_retrieval_ext.stores.open import source_of
from llama_retrieval_ext.text.relative_dates import dates_in, words_of

TYPE_KEY: Final = "memory_type"
IMPORTANCE_KEY: Final = "memory_importance"
MEMORY_KEYS: Final = (TYPE_KEY, TIME_KEY, IMPORTANCE_KEY)
# Metadata of the messages of a chat, beside those of `ConversationParser`.
ROLE_KEY: Final = "role"
_HOUR: Final = timedelta(hours=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# Conditions on metadata, or the values that it must have.
MemoryConditions: TypeAlias = MetadataFilters | Mapping[str, Any]
# Limit of the times of memories, in microseconds before and after 1970: engines compare numbers of
# this size exactly.
_MOST: Final = 2**52


@dataclass(frozen=True)
class Memory:
    """A memory of a user.

    Attributes:
        id: Its id.
        text: Its text.
        memory_type: The kind, such as ``episodic`` for events or ``semantic`` for facts.
        timestamp: Its time; aware, in UTC.
        importance: In [0, 1]; a more important memory fades more slowly.
        metadata: Further fields.
        scope: The scope that owns it; None without one.
        score: Relevance to the query after fading, relative to the other memories; None without a
            query.
    """

    id: str
    text: str
    memory_type: str
    timestamp: datetime
    importance: float = 0.5
    metadata: Mapping[str, Any] = field(default_factory=dict)
    scope: Scope | None = None
    score: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip():
            raise ConfigurationError(f"a memory is a text, got {self.text!r}")
        if not isinstance(self.memory_type, str) or not self.memory_type:
            raise ConfigurationError(f"memory_type must be a name, got {self.memory_type!r}")
        if not is_number(self.importance) or not 0 <= self.importance <= 1:
            raise ConfigurationError(f"importance must be in [0, 1], got {self.importance!r}")
        reserved = {*MEMORY_KEYS, *SCOPE_KEYS}.intersection(self.metadata)
        if reserved:
            raise ConfigurationError(
                f"the metadata of a memory must not contain {sorted(reserved)}, which say what it "
                "is and whose; use the arguments of remember"
            )

    @property
    def session_id(self) -> str | None:
        """The session of a message; None for another memory."""
        return self.metadata.get(SESSION_KEY)

    @property
    def context(self) -> str:
        """The messages before a message in its session; they are searched with it."""
        return str(self.metadata.get(CONTEXT_KEY, ""))

    @property
    def order(self) -> tuple[datetime, int, str]:
        """Sort key: time, number in the session, id."""
        return self.timestamp, self.metadata.get(TURN_KEY, 0), self.id

    def after(self, messages: Sequence["Memory"]) -> "Memory":
        """Return the message with the last of the messages before it as its context."""
        session = [
            message
            for message in messages
            if (message.session_id, message.scope) == (self.session_id, self.scope)
        ]
        context = context_of(
            [message.text for message in session if message.order < self.order][-WINDOW:]
        )
        others = {key: value for key, value in self.metadata.items() if key != CONTEXT_KEY}
        return replace(self, metadata={**others, CONTEXT_KEY: context} if context else others)

    def line(self) -> str:
        """Return the memory for a prompt: its day, its speaker if it has one, its text."""
        role, speaker = (self.metadata.get(key) for key in (ROLE_KEY, SPEAKER_KEY))
        who = speaker or (role if role == MessageRole.ASSISTANT.value else "")
        return f"{self.timestamp:%Y-%m-%d}: {f'{who}: ' if who else ''}{self.text}"

    def to_dict(self) -> dict[str, object]:
        """Return the memory as JSON."""
        return {
            "id": self.id,
            "text": self.text,
            "memory_type": self.memory_type,
            "timestamp": self.timestamp.isoformat(),
            "importance": self.importance,
            "metadata": dict(self.metadata),
            **({} if self.score is None else {"score": self.score}),
        }


def microseconds(moment: datetime, what: str) -> int:
    """Return the whole microseconds since 1970 of an aware datetime."""
    of_type(moment, datetime, what)
    if moment.utcoffset() is None:
        raise ConfigurationError(
            f"{what} must have a time zone, got {moment!r}; write datetime(..., tzinfo=UTC)"
        )
    return (moment - _EPOCH) // _MICROSECOND


def check_time(moment: datetime) -> datetime:
    """Return the aware time of a memory in UTC; raise if it cannot be stored."""
    if abs(microseconds(moment, "timestamp")) > _MOST:
        raise ConfigurationError(f"timestamp must be between 1828 and 2112, got {moment}")
    return moment.astimezone(UTC)


def node_of(memory: Memory) -> TextNode:
    """Return the node that stores a memory; the storage adds the scope, except its principal."""
    principals = None if memory.scope is None else memory.scope.principals
    if principals is not None and len(principals) != 1:
        raise ConfigurationError(
            "a memory belongs to one principal, such as a user, and not to the user's groups; pass "
            f"a scope with that one, got principals={list(principals)}"
        )
    reserved = {
        **({} if principals is None else {ALLOWED_KEY: list(principals)}),
        TYPE_KEY: memory.memory_type,
        TIME_KEY: microseconds(memory.timestamp, "timestamp"),
        IMPORTANCE_KEY: float(memory.importance),
    }
    metadata = {**memory.metadata, **reserved}
    node = TextNode(
        id_=memory.id,
        text=memory.text,
        metadata=metadata,
        excluded_embed_metadata_keys=list(metadata),
        excluded_llm_metadata_keys=list(metadata),
    )
    return node if memory.session_id is None else searched_with_context(node)


def memory_of(node: BaseNode) -> Memory:
    """Return the memory stored in a node."""
    metadata = dict(node.metadata)
    tenant_id, kb_id = metadata.pop(TENANT_KEY, None), metadata.pop(KB_KEY, None)
    principals = metadata.pop(ALLOWED_KEY, None)
    values = {key: metadata.pop(key, None) for key in MEMORY_KEYS}
    kb_ids = None if kb_id is None else (kb_id,)
    return Memory(
        id=node.node_id,
        text=node.get_content(),
        memory_type=str(values[TYPE_KEY]),
        timestamp=_EPOCH + int(values[TIME_KEY]) * _MICROSECOND,
        importance=float(values[IMPORTANCE_KEY]),
        metadata=metadata,
        scope=None
        if tenant_id is None and not kb_ids and principals is None
        else Scope(tenant_id, kb_ids, principals),
    )


def documents_only() -> MetadataFilters:
    """Return the filter that excludes memories from a document search."""
    return MetadataFilters(
        filters=[MetadataFilter(key=TYPE_KEY, value=None, operator=FilterOperator.IS_EMPTY)]
    )


def memory_filters(
    memory_type: str | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    filters: MemoryConditions | None = None,
) -> MetadataFilters:
    """Return the filter for memories of a type and a time range, inclusive."""
    if isinstance(filters, Mapping):
        filters = MetadataFilters(filters=[_equal(*item) for item in filters.items()])
    # Each memory has a time and no document has one, so the first bound finds all memories.
    since = -_MOST if start is None else _bound(start, "start_time")
    until = None if end is None else _bound(end, "end_time")
    conditions = [
        (TYPE_KEY, FilterOperator.EQ, memory_type),
        (TIME_KEY, FilterOperator.GTE, since),
        (TIME_KEY, FilterOperator.LTE, until),
    ]
    parts: list[MetadataFilter | MetadataFilters] = [
        MetadataFilter(key=key, operator=operator, value=value)
        for key, operator, value in conditions
        if value is not None
    ]
    return MetadataFilters(filters=[*parts, *([] if filters is None else [filters])])


def _bound(moment: datetime, what: str) -> int:
    """Return a bound of a range, at most one microsecond beyond the times of memories."""
    return max(-_MOST - 1, min(_MOST + 1, microseconds(moment, what)))


def session_filters(session_id: str | None) -> MetadataFilters:
    """Return the filter for memories of a session, and those of no session."""
    none = MetadataFilter(key=SESSION_KEY, value=None, operator=FilterOperator.IS_EMPTY)
    of_session = [] if session_id is None else [MetadataFilter(key=SESSION_KEY, value=session_id)]
    return MetadataFilters(filters=[none, *of_session], condition=FilterCondition.OR)


def _equal(key: str, value: Any) -> MetadataFilter | MetadataFilters:  # noqa: ANN401 - JSON
    """Return the condition of a metadata value; ``doc_type`` is also a name of the type."""
    equal = MetadataFilter(key=key, value=value)
    if key != "doc_type":
        return equal
    typed = MetadataFilter(key=TYPE_KEY, value=value)
    return MetadataFilters(filters=[typed, equal], condition=FilterCondition.OR)


def dated(query: Query, now: datetime) -> Query:
    """Return a query with its relative dates as messages name theirs; ``now`` is the user's."""
    dates = dates_in(query.query_str, now.date())
    if not dates or query.embedding is not None:
        return query
    return reworded(query, " ".join([query.query_str, *dates]))


def text_of(message: ChatMessage) -> str:
    """Return the text of a message, which may be empty."""
    return (message.content or "").strip()


class MemoryStorage:
    """Storage of memories: documents of a knowledge base, or nodes of a vector store."""

    def __init__(
        self,
        storage: KnowledgeBase | BasePydanticVectorStore | Backend | str,
        embed_model: BaseEmbedding | None,
    ) -> None:
        self._kb = storage if isinstance(storage, KnowledgeBase) else None
        self._languages = None if self._kb is None else self._kb.parts.languages
        if isinstance(storage, KnowledgeBase):
            if embed_model is not None and embed_model is not storage.embed_model:
                raise ConfigurationError("a knowledge base has its own embed_model; leave it out")
            self.backend, self.embed_model = (
                storage.retriever("vector").backend,
                storage.embed_model,
            )
            return
        source = source_of(storage)
        model = embed_model or source.embed_model
        if model is None:
            raise ConfigurationError("memories in a vector store need embed_model=")
        self.backend, self.embed_model = source.backend, model

    def check_scope(self, scope: Scope | None) -> None:
        """Raise `ScopeRequiredError` if a scope is required and there is none."""
        backend = self.backend
        requires = isinstance(backend, EngineBackend) and backend.requires_scope
        if requires and not isolates(scope):
            raise ScopeRequiredError(
                "these memories are in a knowledge base that requires a scope; pass "
                "scope=Scope(...) to the call or to the MemoryManager"
            )
        if isinstance(backend, EngineBackend) and backend.requires_principals:
            check_principals(scope, "the knowledge base of these memories")

    def add(self, node: BaseNode, scope: Scope | None) -> None:
        """Store a node for a scope; raise if that fails."""
        scope = None if scope is None else scope.for_everyone
        if self._kb is not None:
            self._kb.add([node], scope=scope, show_progress=False).raise_for_failures()
            return
        node.metadata = {**node.metadata, **({} if scope is None else scope.metadata())}
        node.excluded_embed_metadata_keys += [] if scope is None else list(scope.metadata())
        text = node.get_content(metadata_mode=MetadataMode.EMBED)
        node.embedding = self.embed_model.get_text_embedding(text)
        self.backend.store.add([node])

    def delete(self, memories: Sequence[Memory]) -> None:
        """Delete memories."""
        if self._kb is None:
            self.backend.store.delete_nodes([memory.id for memory in memories])
            return
        for memory in memories:
            self._kb.delete(memory.id, scope=memory.scope)

    def find(
        self, filters: MetadataFilters, scope: Scope | None, *, ids: Sequence[str] | None = None
    ) -> Plan[list[Hit]]:
        """Return the plan for all nodes in a scope that satisfy filters; every score is 1."""
        node_ids = None if ids is None else list(ids)
        given = parse_filters(filters)
        condition = given if scope is None else AllOf((scope.condition, given))
        store, where = self.backend.store, as_metadata_filters(condition)
        nodes: list[BaseNode] = yield Call(lambda: store.get_nodes(node_ids, where))
        return checked_hits(
            [Candidate(node, 1.0) for node in nodes],
            condition,
            store=type(store).__name__,
            drop_violations=self.backend.drop_violations,
            source="memory",
        )

    def in_session(self, message: Memory, local: datetime) -> Plan[Memory]:
        """Return the plan for a new message with its number in the session and its context.

        ``local`` is its time in the user's time zone.
        """
        earlier: list[Memory] = []
        for start in (message.timestamp - _HOUR, None):  # a session may be long
            if len(earlier) < WINDOW:
                earlier = yield from self._messages(message, start, message.timestamp)
        turn = 1 + max((memory.metadata.get(TURN_KEY, 0) for memory in earlier), default=0)
        metadata = {DATE_KEY: words_of(local), **message.metadata, TURN_KEY: turn}
        return replace(message, metadata=metadata).after(earlier)

    def forget(self, memories: Sequence[Memory]) -> Plan[None]:
        """Return the plan that deletes memories, also from the contexts of other messages."""
        yield Call(lambda: self.delete(memories))
        sessions = {
            (memory.session_id, memory.scope): memory for memory in memories if memory.session_id
        }
        for message in sessions.values():
            messages = yield from self._messages(message)
            for old in messages:
                new = old.after(messages)
                if new.context != old.context:
                    yield Call(partial(self._update, new))

    def _update(self, memory: Memory) -> None:
        if self._kb is None:  # not every store replaces a node of the same id
            self.delete([memory])
        self.add(node_of(memory), memory.scope)

    def _messages(
        self, like: Memory, start: datetime | None = None, end: datetime | None = None
    ) -> Plan[list[Memory]]:
        """Return the plan for the messages of the session of a message, in their order."""
        filters = memory_filters(None, start, end, {SESSION_KEY: like.session_id})
        hits = yield from self.find(filters, like.scope)
        return sorted((memory_of(hit.node) for hit in hits), key=lambda memory: memory.order)

    def nearest(self, query: Query, now: datetime | None) -> Plan[list[Hit]]:
        """Return the plan for the best nodes for a query, by meaning and words if possible.

        Only what holds ``now``; None for the time of the query.
        """
        backend, model, languages = self.backend, self.embed_model, self._languages
        retriever: StoreRetriever
        if backend.features.keyword is None:
            retriever = VectorRetriever(backend, embed_model=model, name="memory")
        else:
            retriever = HybridRetriever(
                backend, embed_model=model, languages=languages, name="memory"
            )
        moment = None if now is None else instant(now)
        # Other stores compare dates as text.
        narrowed = partial(query.but, as_of=now) if isinstance(backend, EngineBackend) else None

        def search(asked: Query) -> Plan[list[Hit]]:
            return (yield from called(retriever.search, retriever.asearch, asked)).hits

        def holds_then(hit: Hit) -> bool:
            return moment is None or holds(hit.node.metadata, moment)

        query = query.unchecked(kept={})  # whose rankings serve all searches
        hits = yield from search(query)
        _, holding = yield from with_holding(search, query, hits, holds_then, narrowed=narrowed)
        return holding[: query.top_k]
