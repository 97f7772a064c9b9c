"""Searches that were made in a batch before the query they belong to asked for them."""

from collections import Counter
from collections.abc import Sequence
from copy import copy

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.execution.context import Session, call, current_context
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate, EngineQuery, VectorQuery


def searched(backend: Backend, asked: EngineQuery) -> Plan[list[Candidate]]:
    """The plan for one search: what was found ahead, or the search itself."""
    known = prefetched_candidates(backend, [asked])
    if known is not None:
        return known[0]
    return (yield from call(_search(backend, asked)))


def searched_at_once(
    backend: Backend, asked: Sequence[EngineQuery]
) -> Plan[list[list[Candidate]] | None]:
    """The plan for several searches in one request; None where there is no such request."""
    batch = backend.batch(asked)
    return None if batch is None else (yield from call(batch))


def prefetch_searches(backend: Backend, asked: Sequence[EngineQuery]) -> Plan[None]:
    """The plan that makes several searches in a batch, where the engine takes one.

    A store that cannot be reached has been waited for: each search of the batch then fails with its
    error once, in the query that it belongs to, and does not wait again.
    """
    session = current_context().session
    once = list(dict.fromkeys(asked))
    batch = backend.batch(once) if once else None
    if batch is None:
        return
    try:
        rankings: list[list[Candidate]] = yield batch
    except StoreUnavailableError as error:
        for each, times in Counter(asked).items():
            session.unreached[id(backend), each] = [error] * times
        raise
    for each, ranking in zip(once, rankings, strict=True):
        session.prefetch[id(backend), each] = ranking


def prefetched_candidates(
    backend: Backend, asked: Sequence[EngineQuery]
) -> list[list[Candidate]] | None:
    """What was found ahead for searches; None unless it is there for each of them.

    Raises:
        StoreUnavailableError: The store could not be reached then. Who asks once more, as a leg
            with retries does, finds out anew.
    """
    session = current_context().session
    if session.unreached:
        _check_reached(backend, asked, session)
    if not session.prefetch:
        return None
    known = [session.prefetch.get((id(backend), each)) for each in asked]
    return None if None in known else known  # type: ignore[return-value]  # what was put there


def _check_reached(backend: Backend, asked: Sequence[EngineQuery], session: Session) -> None:
    told = [session.take_unreached((id(backend), each)) for each in asked]
    error = next((each for each in told if each is not None), None)
    if error is not None:
        raise copy(error) from error  # a copy, because whoever it passes adds notes to it


def _search(backend: Backend, asked: EngineQuery) -> Call[list[Candidate]]:
    if isinstance(asked, VectorQuery):
        return backend.dense(asked.embedding, asked.search)
    return backend.keyword(asked.text, asked.search)
