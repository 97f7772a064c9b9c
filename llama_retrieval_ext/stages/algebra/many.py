"""The answers to several queries, some of them at once."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType

from llama_retrieval_ext.arguments import check_count
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.effects import Call, Plan, Task, Together
from llama_retrieval_ext.execution.frame import current_frame
from llama_retrieval_ext.execution.steps import call
from llama_retrieval_ext.query import Query

if TYPE_CHECKING:
    from llama_retrieval_ext.stages.algebra.retriever import Retriever


def answers(
    retriever: "Retriever", queries: Sequence[QueryType], *, at_once: int
) -> Plan[list[list[NodeWithScore]]]:
    """The plan for what a retriever gives for each of several queries, in their order.

    Args:
        retriever: Who is asked.
        queries: Texts, ``QueryBundle``s or `Query`s.
        at_once: How many are worked on side by side.

    Raises:
        ConfigurationError: ``at_once`` is below 1, there is one query and no list, or something in
            the list is no query.
    """
    if isinstance(queries, str | QueryBundle):
        raise ConfigurationError(f"queries must be a list; write [...] around {queries!r}")
    check_count(at_once, "at_once")
    parsed = [Query.of(query) for query in queries]  # before the first is answered
    found: list[list[NodeWithScore]] = []
    for start in range(0, len(queries), at_once):
        some = queries[start : start + at_once]
        if len(some) > 1:
            ahead = retriever.ahead(parsed[start : start + at_once])
            # What fails here fails again below, in the query that it belongs to; a store that
            # cannot be reached does so without being waited for again.
            yield Together([Task(retriever.name, ahead)])
        outcomes = yield Together([_task(retriever, query) for query in some])
        frame = current_frame()
        if frame is not None:
            frame.session.ahead.clear()  # of many queries it would be all that they found
            frame.session.unreached.clear()
        found += [outcome.result() for outcome in outcomes]
    return found


def _task(retriever: "Retriever", query: QueryType) -> Task[list[NodeWithScore]]:
    asked = Call(partial(retriever.retrieve, query), partial(retriever.aretrieve, query))
    return Task(retriever.name, call(asked))
