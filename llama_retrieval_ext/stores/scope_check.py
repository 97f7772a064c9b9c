"""The gate behind every search of a store: what does not belong goes no further."""

import logging
from collections.abc import Sequence

from llama_retrieval_ext.errors import ScopeViolationError
from llama_retrieval_ext.execution.context import note_degraded
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.results import Hit, Origin, with_origin
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate

_logger = logging.getLogger(__name__)


def gated(
    found: Sequence[Candidate],
    condition: Condition | None,
    *,
    backend: Backend,
    source: str,
    origin: Origin | None = None,
) -> list[Hit]:
    """Hits of the nodes that satisfy a condition, checked once more in plain Python.

    Engines and their integrations have bugs, and a hit from another tenant must not depend on them.

    Args:
        found: What the backend returned.
        condition: Scope and filters of the query.
        backend: Where it came from; says what happens to what does not belong.
        source: What the hits name as their source.
        origin: Where stages find what is stored beside the hits' text.

    Raises:
        ScopeViolationError: Something does not belong, unless the backend has ``drop_violations``.
    """
    hits = [
        with_origin(Hit(node=each.node, score=each.score, source=source), origin) for each in found
    ]
    if condition is None:
        return hits
    passed = [hit for hit in hits if matches(condition, hit.node.metadata)]
    if len(passed) < len(hits):
        kept = {id(hit) for hit in passed}
        dropped = tuple(hit.node.node_id for hit in hits if id(hit) not in kept)
        told = (
            f"{type(backend.store).__name__} returned {len(dropped)} of {len(hits)} hits from "
            "outside the query's scope or filters"
        )
        named = f"{told}: {', '.join(dropped[:5])}; they were dropped"
        if not backend.drop_violations:
            raise ScopeViolationError(
                f"{named}. This is a defect of the store or its integration; to get the other "
                "hits all the same, give its backend drop_violations=True",
                dropped,
            )
        # The answer goes to whoever asked, and may not name what they must not see.
        _logger.warning(named)
        note_degraded(source, f"{told}; they were dropped")
    return passed
