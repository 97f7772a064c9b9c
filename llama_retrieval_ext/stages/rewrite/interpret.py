"""`Interpret`: the rewrite of a query whose words state filters."""

from collections.abc import Awaitable
from dataclasses import KW_ONLY, dataclass
from typing import Protocol, runtime_checkable

from llama_retrieval_ext.execution.context import note_details, note_hint
from llama_retrieval_ext.execution.drivers import called
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.interpretation import Interpretation
from llama_retrieval_ext.llm.functions import AnyLLM
from llama_retrieval_ext.pipeline.stages import Rewrite
from llama_retrieval_ext.query import Query, reworded
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.wording import quoted


@runtime_checkable
class Interprets(Protocol):
    """What knows the fields and values that a scope can see, such as a knowledge base."""

    def interpret(
        self, question: str, *, scope: Scope | None = None, llm: AnyLLM | None = None
    ) -> Interpretation:
        """Return a question as a query and filters."""
        ...

    def ainterpret(
        self, question: str, *, scope: Scope | None = None, llm: AnyLLM | None = None
    ) -> Awaitable[Interpretation]:
        """Return the same without blocking the event loop."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Interpret(Rewrite):
    """Rewrite that makes filters of words: ``Interpret(kb) >> retriever``.

    The query keeps what states no filter, and its own filters. What became a filter is in the
    ``hints`` of the result, and as ``interpretation`` in its details. Fields and values are those
    that the scope of the query can see.

    Args:
        kb: The knowledge base, see ``KnowledgeBase.interpret``.
        llm: Reads the question instead of the grammar; it cannot add a field or a value.
    """

    kb: Interprets
    _: KW_ONLY
    llm: AnyLLM | None = None

    def rewrite_plan(self, query: Query) -> Plan[Query]:
        """Return the plan for the query with the filters that its words state."""
        interpret, twin = self.kb.interpret, self.kb.ainterpret
        text, scope = query.query_str, query.scope
        reading = yield from called(interpret, twin, text, scope=scope, llm=self.llm)
        return with_filters(query, reading)


def with_filters(query: Query, reading: Interpretation) -> Query:
    """Return the query of an interpretation; a question of filters alone is searched as it is."""
    for reason in reading.refused:
        note_hint(reason)
    if reading.filters is None and reading.as_of is None:
        return query
    is_timed = query.scope is not None and query.scope.as_of is not None
    filters = " and ".join(f"{source.filter} ({quoted(source.text)})" for source in reading.sources)
    note_hint(f"filtered by {filters}")
    note_details(is_total=True, interpretation=[s._asdict() for s in reading.sources])
    return reworded(query, reading.query or reading.question).but(
        filters=reading.filters, as_of=None if is_timed else reading.as_of
    )
