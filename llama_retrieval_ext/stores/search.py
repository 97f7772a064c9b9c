"""The check of each hit of a store against the query's scope and filters."""

import logging
from collections.abc import Sequence
from typing import Final

from llama_retrieval_ext.errors import ScopeViolationError
from llama_retrieval_ext.execution.context import ScopeViolationEvent, emit, note_degraded
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.results import Hit, Origin, with_origin
from llama_retrieval_ext.stores.encoding.node_json import assembled
from llama_retrieval_ext.stores.engine.backend import Candidate

_logger = logging.getLogger(__name__)
# Default values of a hit's fields. Hits skip validation, which would double their time.
_HIT: Final = {name: field.default for name, field in Hit.model_fields.items()}


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
