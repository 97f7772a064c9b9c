"""Removes a knowledge base.

Removal marks the ledger, then deletes the nodes, then the ledger. If it is interrupted after the
mark, opening the knowledge base raises an error with the reason, and removal can be repeated. In a
folder the ledger's file is deleted before the store's: a crash in between leaves an empty store
without a ledger, which is not a knowledge base.
"""

from contextlib import closing
from dataclasses import replace
from typing import Final

from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.knowledge_base.graph import graph_target, open_recorded
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.storage import RequestedSetup, missing, open_storage

# Passages removed from a graph per transaction.
_WITHDRAWN: Final = 10_000


@checked_call
def remove_knowledge_base(url: str) -> None:
    """Remove a knowledge base with all its documents and its ledger.

    The URL must name a knowledge base, and no process may be writing to it. If removal is
    interrupted, the rest can be neither opened nor searched; call this again to remove it. Its
    folder is deleted unless it contains other files; the files in which Qdrant's local mode and
    Milvus Lite store their collections stay. Its rows in a graph are removed, and the graph
    stays. If other processes have it open, searches there return nothing and writes fail.

    Args:
        url: As for `KnowledgeBase.open`; no embedding model is needed.

    Raises:
        ConfigurationError: There is no knowledge base.
        StoreFormatError: It is no knowledge base, or a newer version wrote it.
        StoreUnavailableError: It is open in this process; on a server, another process is
            writing to it, or died less than 30 seconds ago while it was; it cannot be reached;
            or another process has its directory open.
        MissingDependencyError: The engine's extra is not installed.

    Examples:
        >>> remove_knowledge_base("embedded:./none")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        llama_retrieval_ext.errors.ConfigurationError: there is no knowledge base at embed...

    """
    setup = RequestedSetup(must_exist=True, may_create=False)
    # The lock is also held by an object that opens it.
    with closing(open_storage(url, setup)) as storage, storage.lock:
        if storage.is_shared():
            raise StoreUnavailableError(f"{url} is open in this process; close it first")
        with closing(storage.ledger()) as ledger:
            _mark_removing(ledger, url)
            _withdraw_from_graph(ledger, url)
        storage.remove()


def _withdraw_from_graph(ledger: Ledger, url: str) -> None:
    """Remove the rows of a knowledge base from its graph."""
    config = ledger.config()
    if config is None or not config.graph:
        return
    ids = ledger.visible_ids(None)
    if not ids:
        return
    with closing(open_recorded(config.graph, url)) as graph:
        target = graph_target(graph, ledger)
        for start in range(0, len(ids), _WITHDRAWN):
            target.delete(ids[start : start + _WITHDRAWN])


def _mark_removing(ledger: Ledger, url: str) -> None:
    config = ledger.config()
    if config is None:
        raise missing(url, to_create=False)
    config.check_format(url)
    if config.removing:
        return
    # Mark first, then check for claims: a writer claims first, then checks for the mark.
    ledger.update_config(lambda recorded: recorded and replace(recorded, removing=True))
    try:
        ledger.check_unwritten(url)
    except BaseException:
        ledger.update_config(lambda recorded: recorded and replace(recorded, removing=False))
        raise
