"""`remove_knowledge_base`: a knowledge base goes, with its ledger and what it wrote to a graph."""

from dataclasses import replace
from typing import Final

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.ingest.graph.side import open_recorded
from llama_retrieval_ext.ingest.ledger.ledger import Ledger
from llama_retrieval_ext.ingest.storage import (
    RequestedSetup,
    graph_target,
    missing,
    open_storage,
)

# Passages that are withdrawn from a graph in one transaction.
_WITHDRAWN: Final = 10_000


def remove_knowledge_base(url: str) -> None:
    """Remove a knowledge base; see `KnowledgeBase.remove`."""
    place = open_storage(url, RequestedSetup(must_exist=True))
    try:
        with place.lock:  # an object that opens it holds it, too
            if place.is_shared():
                raise StoreUnavailableError(f"{url} is open in this process; close it first")
            ledger = place.ledger()
            try:
                _mark_removing(ledger, url)
                _withdraw_from_graph(ledger, url)
            finally:
                ledger.close()
            place.remove()
    finally:
        place.close()


def _withdraw_from_graph(ledger: Ledger, url: str) -> None:
    """Remove what a knowledge base has written to its graph."""
    config = ledger.config()
    if config is None or not config.graph:
        return
    keys = [entry.key for entry in ledger.visible(None)]
    ids = [id_ for own in ledger.node_ids(keys).values() for id_ in own]
    if not ids:
        return
    graph = open_recorded(config.graph, url)
    try:
        target = graph_target(graph, ledger)
        for start in range(0, len(ids), _WITHDRAWN):
            target.delete(ids[start : start + _WITHDRAWN])
    finally:
        graph.close()


def _mark_removing(ledger: Ledger, url: str) -> None:
    config = ledger.config()
    if config is None:
        raise missing(url)
    config.check_format(url)
    if config.removing:
        return
    # First the mark, then the look for claims: a writer claims first, and then looks for the mark.
    ledger.update_config(lambda recorded: recorded and replace(recorded, removing=True))
    try:
        ledger.check_unwritten(url)
    except BaseException:
        ledger.update_config(lambda recorded: recorded and replace(recorded, removing=False))
        raise
