"""The gate behind every search of a store: each hit is checked once more, in plain Python."""

import logging
from collections.abc import Sequence
from typing import Final

from llama_retrieval_ext.errors import ScopeViolationError
from llama_retrieval_ext.execution.context import ScopeViolationEvent, emit, note_degraded
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.results import Hit, Origin, with_origin
from llama_retrieval_ext.stores.encoding.node_json import assembled
from llama_retrieval_ext.stores.engine.backend import Candidate, unique

_logger = logging.getLogger(__name__)
# Default values of a hit's fields. Hits skip validation, which would double their time.
_HIT: Final = {name: field.default for name, field in Hit.model_fields.items()}


def checked_hits(
    candidates: Sequence[Candidate],
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
                    "node": candidate.node,
                    "score": candidate.score,
                    "source": source,
                    "contributions": candidate.contributions,
                },
            ),
            origin,
        )
        for candidate in unique(candidates)
    ]
    dropped = tuple(hit.node_id for hit in hits if not matches(condition, hit.node.metadata))
    if not dropped:
        return hits
    violations, returned = len(dropped), len(hits)
    emit(ScopeViolationEvent(store=store, source=source, violations=violations, returned=returned))
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
    return [hit for hit in hits if hit.node_id not in dropped]
