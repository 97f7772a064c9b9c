"""Searches that ran in a batch before their queries needed them."""

from collections import Counter
from collections.abc import Sequence
from copy import copy

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.execution.context import Session, call, current_context, recording
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.stores.engine.backend import (
    Backend,
    Candidate,
    Choose,
    EngineQuery,
    KeywordQuery,
    VectorQuery,
    chosen_candidates,
)


def search(backend: Backend, query: EngineQuery) -> Plan[list[Candidate]]:
    """Return the prefetched candidates of a query, or search for them."""
    known = prefetched_candidates(backend, [query])
    if known is not None:
        return known[0]
    return (yield from call(_search_call(backend, query)))


def search_hybrid(
    backend: Backend, vector: VectorQuery, keyword: KeywordQuery, choose: Choose, *, top_k: int
) -> Plan[list[Candidate] | None]:
    """Return the chosen candidates of two queries, prefetched or from one request.

    None where there is no such request; see `Backend.hybrid`.
    """
    known = prefetched_candidates(backend, [vector, keyword])
    if known is not None:
        return chosen_candidates(choose, *known)
    hybrid = backend.hybrid(vector, keyword, choose, top_k=top_k)
    return None if hybrid is None else (yield from call(hybrid))


def prefetch_searches(backend: Backend, queries: Sequence[EngineQuery]) -> Plan[None]:
    """Run searches in a batch, where the engine takes one.

    A store that cannot be reached has been waited for: each search of the batch then fails with its
    error once, in the query that it belongs to, and does not wait again.
    """
    session = current_context().session
    once = list(dict.fromkeys(queries))
    batch = backend.batch(once) if once else None
    if batch is None:
        return
    try:
        rankings: list[list[Candidate]] = yield batch
    except StoreUnavailableError as error:
        for each, times in Counter(queries).items():
            session.unreached[id(backend), each] = [error] * times
        raise
    for each, ranking in zip(once, rankings, strict=True):
        session.prefetch[id(backend), each] = ranking


def prefetched_candidates(
    backend: Backend, queries: Sequence[EngineQuery]
) -> list[list[Candidate]] | None:
    """Return the prefetched candidates of queries; None unless all of them were prefetched.

    Raises:
        StoreUnavailableError: The prefetch could not reach the store; raised once, so that a retry
            contacts it again.
    """
    session = current_context().session
    if session.unreached:
        _check_reached(backend, queries, session)
    if not session.prefetch:
        return None
    known = [session.prefetch.get((id(backend), each)) for each in queries]
    if None in known:
        return None
    trace = recording()
    if trace is not None:
        trace.notes["cache_hits"] = ["search, by the batch"]
    return known  # type: ignore[return-value]  # what was put there


def _check_reached(backend: Backend, queries: Sequence[EngineQuery], session: Session) -> None:
    errors = [session.take_unreached((id(backend), each)) for each in queries]
    error = next((each for each in errors if each is not None), None)
    if error is not None:
        raise copy(error) from error  # a copy, because callers add notes to it


def _search_call(backend: Backend, query: EngineQuery) -> Call[list[Candidate]]:
    if isinstance(query, VectorQuery):
        return backend.dense(query.embedding, query.search)
    return backend.keyword(query.text, query.search)
