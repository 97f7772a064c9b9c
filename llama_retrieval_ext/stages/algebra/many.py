"""The answers to several queries, some of them at once."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType

from llama_retrieval_ext.arguments import check_count
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.effects import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.frame import Session, current_frame
from llama_retrieval_ext.execution.steps import call
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import SearchResult
from llama_retrieval_ext.stages.algebra.results import asearched_apart, searched_apart

if TYPE_CHECKING:
    from llama_retrieval_ext.stages.algebra.retriever import Retriever

T = TypeVar("T")


def answers(
    retriever: "Retriever",
    queries: Sequence[QueryType],
    request: "Callable[[Retriever, QueryType], Call[T]]",
    *,
    at_once: int,
) -> Plan[list[T]]:
    """The plan for what a retriever gives for each of several queries, in their order.

    Args:
        retriever: Who is asked.
        queries: Texts, ``QueryBundle``s or `Query`s.
        request: Makes the call for one query.
        at_once: How many are worked on side by side.

    Raises:
        ConfigurationError: ``at_once`` is below 1, there is one query and no list, or a part of the
            list is no query.
        Exception: The error of the first request that failed, once those beside it are done.
    """
    if isinstance(queries, str | QueryBundle):
        raise ConfigurationError(f"queries must be a list; write [...] around {queries!r}")
    check_count(at_once, "at_once")
    found: list[T] = []
    known = [Query.of(query) for query in queries]
    for start in range(0, len(queries), at_once):
        some = queries[start : start + at_once]
        if len(some) > 1:
            ahead = retriever.ahead(known[start : start + at_once])
            # What fails here fails again below, in the query that it belongs to; a store that
            # cannot be reached does so without being waited for again.
            yield Together([Task(retriever.name, ahead)])
        tasks = [Task(retriever.name, call(request(retriever, query))) for query in some]
        outcomes: list[Outcome[T]] = yield Together(tasks)
        frame = current_frame()
        if frame is not None:
            frame.session.ahead.clear()  # of many queries it would be all that they found
            frame.session.unreached.clear()
        for number, outcome in enumerate(outcomes, start=start + 1):
            if outcome.error is not None:
                outcome.error.add_note(f"in query {number} of {len(queries)}")
            found.append(outcome.result())
    return found


def retrieval_of(retriever: "Retriever", query: QueryType) -> Call[list[NodeWithScore]]:
    """The call for the ranking of one query."""
    return Call(lambda: retriever.retrieve(query), lambda: retriever.aretrieve(query))


def search_of(retriever: "Retriever", query: QueryType) -> Call[SearchResult]:
    """The call for the result of one query, which has its error too."""
    frame = current_frame()
    session = Session() if frame is None else frame.session.apart()
    return Call(
        lambda: searched_apart(retriever, query, session),
        lambda: asearched_apart(retriever, query, session),
    )
