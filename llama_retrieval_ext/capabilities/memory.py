"""`MemoryManager`: stores and recalls a user's memories; also as a LlamaIndex memory block."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.schema import QueryType
from llama_index.core.vector_stores.types import BasePydanticVectorStore, MetadataFilters

from llama_retrieval_ext.capabilities.memory_storage import (
    ROLE_KEY,
    Memory,
    MemoryConditions,
    MemoryStorage,
    check_time,
    dated,
    memory_filters,
    memory_of,
    node_of,
    session_filters,
    text_of,
)
from llama_retrieval_ext.checks import check_count, checked_call, declared_arguments, of_type
from llama_retrieval_ext.dates import VALID_FROM, VALID_TO, Moment, moment_of
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import asynchronous, blocking
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.formulas.decay import exponential_decay
from llama_retrieval_ext.hits import score_of
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.conversations import SAID_KEY
from llama_retrieval_ext.llm.model import count_tokens
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.scope import SESSION_KEY, SPEAKER_KEY, Scope, shown_to
from llama_retrieval_ext.stores.engine.backend import Backend

# Share of its similarity to the query that a memory of strength 0 loses.
_FADING: Final = 0.3
_DAY_S: Final = 86_400.0
# Age at which a memory of importance 0 has half its strength.
_HALF_LIFE_DAYS: Final = 30.0
EPISODIC: Final = "episodic"
_CANDIDATES_PER_MEMORY: Final = 4


def strength(*, age_days: float, importance: float) -> float:
    r"""Return the strength of a memory, in (0, 1]; it is 1 for a memory from the future.

    .. math:: s = 2^{-\frac{a}{h} (1 - i)}

    where a is the age, h = 30 days, and i the importance.

    Examples:
        >>> strength(age_days=60, importance=0.5)
        0.5

    """
    age = max(age_days, 0.0) * (1 - importance)
    return exponential_decay(age, half_life=_HALF_LIFE_DAYS)


@declared_arguments
class MemoryManager:
    """A user's memories in a knowledge base or vector store, under the user's scope.

    Args:
        storage: A knowledge base; or a vector store or its URL, with ``embed_model``.
        embed_model: The model of a vector store; a knowledge base has its own.
        scope: The scope of every call; a call can narrow it. None if each call passes its own.
        clock: Gives the current, aware time.
        timezone: The time zone of the user: of "yesterday" in questions, and of the days of
            messages and memories; None for that of the clock, which is UTC by default.

    Raises:
        ConfigurationError: There is no storage, or a vector store without an embedding model.

    Examples:
        >>> from llama_index.core import MockEmbedding
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     memories = MemoryManager(kb, scope=Scope("anna"))
        ...     _ = memories.remember("Prefers short answers", memory_type="semantic")
        ...     [each.text for each in memories.retrieve("How long?", memory_type="semantic")]
        ['Prefers short answers']

    """

    def __init__(
        self,
        storage: KnowledgeBase | BasePydanticVectorStore | Backend | str,
        *,
        embed_model: BaseEmbedding | None = None,
        scope: Scope | None = None,
        clock: Callable[[], datetime] | None = None,
        timezone: tzinfo | None = None,
    ) -> None:
        self._storage = MemoryStorage(storage, embed_model)
        self.scope = scope
        self._now = clock or (lambda: datetime.now(UTC))
        self.timezone = timezone

    @blocking
    def remember(  # noqa: PLR0913 - what a memory has
        self,
        text: str,
        *,
        memory_type: str = EPISODIC,
        timestamp: datetime | None = None,
        importance: float = 0.5,
        session_id: str | None = None,
        speaker: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        valid_from: Moment | None = None,
        valid_to: Moment | None = None,
        scope: Scope | None = None,
    ) -> Plan[Memory]:
        """Store a memory; it is durable when this returns.

        A message of a session is searched with its speaker, its date, and its ``context``: the two
        messages before it in the session, of the same scope.

        Args:
            text: The text of the memory.
            memory_type: The kind, such as ``episodic`` or ``semantic``.
            timestamp: The time of the memory, with a time zone; None for now.
            importance: In [0, 1]; a more important memory fades more slowly.
            session_id: The session of a message; None for another memory.
            speaker: Who says it.
            metadata: Further fields; filters can use them.
            valid_from: The first instant at which it holds, a date or a datetime.
            valid_to: The first instant at which it no longer holds.
            scope: Narrows the manager's scope. Of principals it may have one, who sees the memory.

        Raises:
            ConfigurationError: An argument is out of range, or ``timestamp`` has no time zone, or
                is not between 1828 and 2112.
            ScopeRequiredError: The knowledge base requires a scope.
            IngestionError: It could not be stored.
        """
        message: dict[str, object] = {SESSION_KEY: session_id, SPEAKER_KEY: speaker}
        for key, date in ((VALID_FROM, valid_from), (VALID_TO, valid_to)):
            message[key] = None if date is None else moment_of(date, key)
        memory = Memory(
            id=uuid.uuid4().hex,
            text=text,
            memory_type=memory_type,
            timestamp=check_time(self._now() if timestamp is None else timestamp),
            importance=importance,
            metadata={**(metadata or {}), **{k: value for k, value in message.items() if value}},
            scope=self._within(scope),
        )
        if memory.session_id is not None:
            memory = yield from self._storage.in_session(memory, self._local(memory.timestamp))
        yield Call(lambda: self._storage.add(node_of(memory), memory.scope))
        return memory

    aremember = asynchronous(remember)

    @blocking
    def retrieve(  # noqa: PLR0913 - a search, and for which time
        self,
        query: QueryType,
        *,
        top_k: int = 5,
        memory_type: str | None = None,
        filters: MemoryConditions | None = None,
        as_of: Moment | None = None,
        known_at: datetime | None = None,
        scope: Scope | None = None,
    ) -> Plan[list[Memory]]:
        """Return the memories most similar to a query, best first; faded ones rank lower.

        Args:
            query: Text, ``QueryBundle`` or `Query`; with "last May" or 昨天 it prefers those days.
            top_k: Number of memories, at least 1.
            memory_type: Only of this type; None for any.
            filters: Conditions on metadata, or a mapping of the values that it must have; there
                ``doc_type`` is also a name of the memory type.
            as_of: Only what held then, by ``valid_from`` and ``valid_to``; None for what holds now.
            known_at: Only what was said until then, with a time zone; None for everything.
            scope: Narrows the manager's scope.

        Raises:
            ConfigurationError: ``top_k`` is below 1.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        bound = dated(Query.of(query), self._local(self._now())).but(
            filters=memory_filters(memory_type, end=known_at, filters=filters),
            scope=self._within(scope),
            as_of=as_of,
            top_k=_CANDIDATES_PER_MEMORY * check_count(top_k, "top_k"),
        )
        hits = yield from self._storage.nearest(bound, self._now() if as_of is None else None)
        faded: list[Memory] = []
        for hit in hits:
            memory, score = memory_of(hit.node), score_of(hit)
            loss = _FADING * (1 - self.strength(memory)) * abs(score)
            faded.append(replace(memory, score=score - loss))
        return sorted(faded, key=lambda memory: (-(memory.score or 0.0), memory.id))[:top_k]

    aretrieve = asynchronous(retrieve)

    @blocking
    def retrieve_by_timerange(
        self,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        *,
        filters: MemoryConditions | None = None,
        memory_type: str | None = None,
        scope: Scope | None = None,
    ) -> Plan[list[Memory]]:
        """Return all memories in a time range, oldest first; the engine evaluates the range.

        Args:
            start_time: Start of the range, inclusive, with a time zone; None for no bound.
            end_time: End of the range, inclusive, with a time zone; None for no bound.
            filters: Conditions on metadata, or a mapping of the values that it must have; there
                ``doc_type`` is also a name of the memory type.
            memory_type: Only of this type; None for any.
            scope: Narrows the manager's scope.

        Raises:
            ConfigurationError: A time has no time zone, or the range ends before it begins.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        bound = memory_filters(memory_type, start_time, end_time, filters)
        if start_time is not None and end_time is not None and end_time < start_time:
            raise ConfigurationError(f"the range ends before it begins: {start_time}, {end_time}")
        return self._find(bound, scope)

    aretrieve_by_timerange = asynchronous(retrieve_by_timerange)

    def strength(self, memory: Memory) -> float:
        """Return the current strength of a memory, in (0, 1]."""
        age_days = (self._now() - memory.timestamp).total_seconds() / _DAY_S
        return strength(age_days=age_days, importance=memory.importance)

    @blocking
    def forget(self, memory_id: str, *, scope: Scope | None = None) -> Plan[bool]:
        """Delete a memory, also from contexts; return whether there was one in the scope."""
        ids = [of_type(memory_id, str, "memory_id")]
        memories = yield from self._find(memory_filters(), scope, ids=ids)
        yield from self._storage.forget(memories)
        return bool(memories)

    aforget = asynchronous(forget)

    @blocking
    def forget_session(self, session_id: str, *, scope: Scope | None = None) -> Plan[list[Memory]]:
        """Delete the messages of a session, with their contexts, and return them."""
        messages = yield from self._find(memory_filters(filters={SESSION_KEY: session_id}), scope)
        yield from self._storage.forget(messages)
        return messages

    aforget_session = asynchronous(forget_session)

    @blocking
    def forget_faded(
        self, *, below: float = 0.05, scope: Scope | None = None
    ) -> Plan[list[Memory]]:
        """Delete the memories whose strength is below a limit, and return them."""
        if not is_number(below):
            raise ConfigurationError(f"below must be a finite number, got {below!r}")
        memories = yield from self._find(memory_filters(), scope)
        faded = [memory for memory in memories if self.strength(memory) < below]
        yield from self._storage.forget(faded)
        return faded

    aforget_faded = asynchronous(forget_faded)

    @checked_call
    def as_memory_block(
        self,
        *,
        scope: Scope | None = None,
        top_k: int = 5,
        across_sessions: bool = False,
        name: str = "memories",
        priority: int = 1,
    ) -> "MemoryBlock":
        """Return a LlamaIndex memory block that stores messages and recalls relevant memories.

        Args:
            scope: Narrows the manager's scope.
            top_k: Number of memories to recall.
            across_sessions: Whether messages of other sessions are recalled as well.
            name: Name of the block in the prompt.
            priority: LlamaIndex's priority; 0 is never truncated.
        """
        return MemoryBlock(
            manager=self,
            scope=self._within(scope),
            top_k=top_k,
            across_sessions=across_sessions,
            name=name,
            priority=priority,
        )

    def line(self, memory: Memory) -> str:
        """Return a memory for a prompt: its day for the user, its speaker, its text."""
        return replace(memory, timestamp=self._local(memory.timestamp)).line()

    def _local(self, moment: datetime) -> datetime:
        """Return a time in the user's time zone."""
        zone = self.timezone or self._now().tzinfo
        return moment.astimezone(zone)

    def _find(
        self, filters: MetadataFilters, scope: Scope | None, *, ids: Sequence[str] | None = None
    ) -> Plan[list[Memory]]:
        within = self._within(scope)
        hits = yield from self._storage.find(filters, within, ids=ids)
        memories = [memory_of(shown_to(within, hit.node)) for hit in hits]
        return sorted(memories, key=lambda memory: memory.order)

    def _within(self, scope: Scope | None) -> Scope | None:
        narrowed = scope if self.scope is None else self.scope.narrowed(scope)
        self._storage.check_scope(narrowed)
        return narrowed


# Number of the user's latest messages that form the query.
_RECENT: Final = 3
_STORED_ROLES: Final = (MessageRole.USER, MessageRole.ASSISTANT)


class MemoryBlock(BaseMemoryBlock[str]):
    """LlamaIndex block that stores messages leaving short-term memory and recalls memories.

    It stores what the user and the assistant said, and recalls memories of the same session and
    those of no session, which ``MemoryManager.remember`` stored. A message may have ``speaker`` and
    ``time`` (ISO 8601 with a zone) in its ``additional_kwargs``.

    Created by ``MemoryManager.as_memory_block``, for
    ``llama_index.core.memory.Memory.from_defaults(memory_blocks=[...])``.

    Args:
        manager: Stores and recalls the memories.
        scope: Their scope; None for the manager's.
        top_k: Number of memories to recall.
        across_sessions: Whether messages of other sessions are recalled as well.

    Examples:
        >>> from llama_index.core import MockEmbedding
        >>> from llama_retrieval_ext import KnowledgeBase, MemoryManager
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     block = MemoryManager(kb).as_memory_block(scope=Scope("anna"))
        >>> block.name, block.scope
        ('memories', Scope(tenant_id='anna'))

    """

    name: str = "memories"
    manager: MemoryManager
    scope: Scope | None = None
    top_k: int = 5
    across_sessions: bool = False

    async def _aget(
        self,
        messages: list[ChatMessage] | None = None,
        session_id: str | None = None,
        **_: Any,  # noqa: ANN401 - LlamaIndex's
    ) -> str:
        users = (message for message in messages or () if message.role == MessageRole.USER)
        query = "\n".join(list(filter(None, map(text_of, users)))[-_RECENT:])
        if not query:
            return ""
        filters = None if self.across_sessions else session_filters(session_id)
        memories = await self.manager.aretrieve(
            query, top_k=self.top_k, filters=filters, scope=self.scope
        )
        return "\n".join(map(self.manager.line, memories))

    async def _aput(self, messages: list[ChatMessage]) -> None:
        for message in messages:
            text = text_of(message)
            if message.role not in _STORED_ROLES or not text:
                continue
            session_id, speaker, time = (
                message.additional_kwargs.get(key) for key in (SESSION_KEY, SPEAKER_KEY, SAID_KEY)
            )
            await self.manager.aremember(
                text,
                timestamp=datetime.fromisoformat(time) if isinstance(time, str) else time,
                session_id=session_id,
                speaker=speaker,
                metadata={ROLE_KEY: message.role.value},
                scope=self.scope,
            )

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return the content without its last lines; None if nothing is left."""
        lines = content.split("\n")
        before = count_tokens(content)
        while lines and before - count_tokens("\n".join(lines)) < tokens_to_truncate:
            lines.pop()
        return "\n".join(lines) or None
