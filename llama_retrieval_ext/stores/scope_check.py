"""The check behind every search: hits that violate the query's condition go no further."""

import logging
from collections.abc import Sequence

from llama_index_instrumentation import get_dispatcher

from llama_retrieval_ext.errors import ScopeViolationError
from llama_retrieval_ext.execution.context import note_degraded
from llama_retrieval_ext.execution.events import ScopeViolationEvent
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.results import Hit, Origin, with_origin
from llama_retrieval_ext.stores.engine.backend import Candidate

_logger = logging.getLogger(__name__)
_dispatcher = get_dispatcher(__name__)


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

    Engines and their integrations have bugs, and a hit from another tenant must not depend on them.

    Args:
        found: What a store returned.
        condition: Scope and filters of the query.
        store: The store's name, for messages.
        drop_violations: Whether hits that violate it are dropped instead of raising.
        source: The source of the hits.
        origin: Where stages find what is stored beside the hits' text.

    Raises:
        ScopeViolationError: A hit violates the condition, and is not to be dropped.
    """
    hits = [
        with_origin(Hit(node=each.node, score=each.score, source=source), origin) for each in found
    ]
    if condition is None:
        return hits
    passed = [hit for hit in hits if matches(condition, hit.node.metadata)]
    if len(passed) < len(hits):
        _dispatcher.event(
            ScopeViolationEvent(
                store=store,
                source=source,
                violations=len(hits) - len(passed),
                returned=len(hits),
            )
        )
        kept = {id(hit) for hit in passed}
        dropped = tuple(hit.node.node_id for hit in hits if id(hit) not in kept)
        message = (
            f"{store} returned {len(dropped)} of {len(hits)} hits from "
            "outside the query's scope or filters"
        )
        named = f"{message}: {', '.join(dropped[:5])}; they were dropped"
        if not drop_violations:
            raise ScopeViolationError(
                f"{named}. This is a defect of the store or its integration; to get the other "
                "hits all the same, give its backend drop_violations=True",
                dropped,
            )
        # The caller may not see the ids.
        _logger.warning(named)
        note_degraded(source, f"{message}; they were dropped")
    return passed
