"""Rankings shared between pipelines, one retriever call per query, and the cost of answers."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation.events.embedding import EmbeddingStartEvent
from llama_index.core.instrumentation.events.llm import LLMChatStartEvent, LLMCompletionStartEvent
from llama_index.core.schema import NodeWithScore
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.event_handlers import BaseEventHandler

from llama_retrieval_ext.execution.context import current_context, entered
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.plan import Call, Plan, SingleFlight
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.trace import Degradation


@dataclass(slots=True)
class Cost:
    """Cost of an answer.

    Attributes:
        embeddings: Number of calls of embedding models.
        llm_calls: Number of calls of LLMs.
        reused_s: Original duration of each ranking reused from another answer, in seconds.
    """

    embeddings: int = 0
    llm_calls: int = 0
    reused_s: list[float] = field(default_factory=list)


_cost: ContextVar[Cost | None] = ContextVar("llama_retrieval_ext_cost", default=None)


@contextmanager
def counting(cost: Cost) -> Generator[Cost]:
    """Count the calls of models within the block, in all of its threads and tasks."""
    token = _cost.set(cost)
    try:
        yield cost
    finally:
        _cost.reset(token)


@contextmanager
def counted_calls() -> Generator[None]:
    """Connect LlamaIndex's instrumentation to `counting` within the block."""
    root, counter = get_dispatcher(), _CallCounter()
    root.add_event_handler(counter)
    try:
        yield
    finally:
        root.event_handlers.remove(counter)


class _CallCounter(BaseEventHandler):
    @classmethod
    def class_name(cls) -> str:
        return "_CallCounter"

    def handle(self, event: BaseEvent, **_: object) -> None:
        cost = _cost.get()
        if cost is None:
            return
        if isinstance(event, EmbeddingStartEvent):
            cost.embeddings += 1
        elif isinstance(event, LLMChatStartEvent | LLMCompletionStartEvent):
            cost.llm_calls += 1


@dataclass(frozen=True, slots=True)
class _Ranking:
    # Keeps the retriever alive, so that no other object gets its id.
    retriever: BaseRetriever
    hits: list[NodeWithScore]
    cost: Cost
    degraded: list[Degradation]
    duration_s: float


class SharedRankings:
    """Rankings for one query, by retriever object.

    An answer that reuses a ranking is charged the original cost of the ranking.
    """

    def __init__(self) -> None:
        self._rankings = SingleFlight()

    def ranking(
        self, retriever: BaseRetriever, query: Query, plan: Plan[list[NodeWithScore]]
    ) -> Plan[list[NodeWithScore]]:
        """Return the plan for a ranking; run ``plan`` if there is no ranking yet."""
        is_new = False

        def find() -> _Ranking:
            nonlocal is_new
            is_new = True
            context = current_context()
            session = context.session.apart()
            begun = time.perf_counter()
            with entered(replace(context, session=session)), counting(Cost()) as cost:
                hits = run(plan)
            duration_s = time.perf_counter() - begun
            return _Ranking(retriever, hits, cost, session.degraded, duration_s)

        shared = yield from self._rankings.get(_key(retriever, query), lambda: Call(find))
        current_context().session.degraded.extend(shared.degraded)
        cost = _cost.get()
        if cost is not None:
            cost.embeddings += shared.cost.embeddings
            cost.llm_calls += shared.cost.llm_calls
            cost.reused_s.extend(shared.cost.reused_s if is_new else [shared.duration_s])
        return list(shared.hits)


def _key(retriever: BaseRetriever, query: Query) -> tuple[object, ...]:
    embedding = None if query.embedding is None else tuple(query.embedding)
    texts = tuple(query.embedding_strs)
    limits = (query.top_k, query.at_least, repr(query.condition))
    return (id(retriever), query.query_str, texts, embedding, *limits)
