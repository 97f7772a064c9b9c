"""Searches of retrievers: prefetched or sent; each hit is checked against the query."""

import logging
from collections import Counter
from collections.abc import Sequence
from copy import copy
from typing import Final

from llama_retrieval_ext.errors import ScopeViolationError, StoreUnavailableError
from llama_retrieval_ext.execution.context import (
    Session,
    call,
    current_context,
    note_degraded,
    recording,
)
from llama_retrieval_ext.execution.events import ScopeViolationEvent, emit
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.results import Hit, Origin, with_origin
from llama_retrieval_ext.stores.encoding.node_json import assembled
from llama_retrieval_ext.stores.engine.backend import (
    Backend,
    Candidate,
    Choose,
    EngineQuery,
    KeywordQuery,
    VectorQuery,
    chosen_candidates,
)

_logger = logging.getLogger(__name__)
# Default values of a hit's fields. Hits skip validation, which would double their time.
_HIT: Final = {name: field.default for name, field in Hit.model_fields.items()}


def search(backend: Backend, query: EngineQuery) -> Plan[list[Candidate]]:
    """Return the prefetched candidates of a query, or search for them."""
    known = prefetched_candidates(backend, [query])
    if known is not None:
        return known[0]
    if isinstance(query, VectorQuery):
        return (yield from call(backend.dense(query.embedding, query.search)))
    return (yield from call(backend.keyword(query.text, query.search)))


def search_hybrid(
    backend: Backend,
    vector: VectorQuery,
    keyword: KeywordQuery,
    choose: Choose,
    *,
    top_k: int,
    by_key: bool,
) -> Plan[list[Candidate] | None]:
    """Return the chosen candidates of two queries, prefetched or from one request.

    Return None if the engine has no such request; see `Backend.hybrid`.
    """
    known = prefetched_candidates(backend, [vector, keyword])
    if known is None and by_key:
        hybrid = backend.hybrid(vector, keyword, choose, top_k=top_k)
        return None if hybrid is None else (yield from call(hybrid))
    if known is None:
        batch = backend.batch([vector, keyword])
        known = None if batch is None else (yield from call(batch))
    return None if known is None else chosen_candidates(choose, *known, top_k=top_k)


def prefetch_searches(backend: Backend, queries: Sequence[EngineQuery]) -> Plan[None]:
    """Run searches in a batch, where the engine supports it.

    If the store cannot be reached, the batch waits once: each of its searches then fails with that
    error in its own query, without waiting again.
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
    """Return the prefetched candidates of queries; None unless all of them were prefetched."""
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


def checked_hits(
    found: Sequence[Candidate],
    condition: Condition | None,
    *,
    store: str,
    drop_violations: bool,
    source: str,
    origin: Origin | None = None,
) -> list[Hit]:
    """Return hits of the candidates that satisfy a condition, evaluated again in plain Python.

    Engines and their integrations have bugs; this check keeps hits of other tenants out anyway.
    A hit that violates it raises `ScopeViolationError`, or is dropped with ``drop_violations``.
    """
    hits = [
        with_origin(
            assembled(
                Hit,
                {
                    **_HIT,
                    "node": each.node,
                    "score": each.score,
                    "source": source,
                    "contributions": each.contributions,
                },
            ),
            origin,
        )
        for each in found
    ]
    if condition is None:
        return hits
    passed = [hit for hit in hits if matches(condition, hit.node.metadata)]
    if len(passed) == len(hits):
        return passed
    kept = {id(hit) for hit in passed}
    dropped = tuple(hit.node.node_id for hit in hits if id(hit) not in kept)
    emit(
        lambda: ScopeViolationEvent(
            store=store, source=source, violations=len(dropped), returned=len(hits)
        )
    )
    message = (
        f"{store} returned {len(dropped)} of {len(hits)} hits from outside the query's scope or "
        "filters"
    )
    named = f"{message}: {', '.join(dropped[:5])}; they were dropped"
    if not drop_violations:
        raise ScopeViolationError(
            f"{named}. This is a defect of the store or its integration; to get the other hits all "
            "the same, give its backend drop_violations=True",
            dropped,
        )
    # Ids go to the log only: the caller may not be allowed to see them.
    _logger.warning(named)
    note_degraded(source, f"{message}; they were dropped")
    return passed
