"""Opens the ledger of a knowledge base, and removes a knowledge base.

Removal marks the ledger, then deletes the nodes, then the ledger. If it is interrupted after the
mark, opening the knowledge base raises an error with the reason, and removal can be repeated. In a
folder the ledger's file is deleted before the store's: a crash in between leaves an empty store
without a ledger, which is not a knowledge base.
"""

import logging
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Final

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.knowledge_base.graph import GraphSide, GraphTarget, open_recorded
from llama_retrieval_ext.knowledge_base.ledger.journal import Journal, LocalJournal
from llama_retrieval_ext.knowledge_base.ledger.ledger import (
    FORMAT,
    KnowledgeBaseConfig,
    Ledger,
    unknown_nodes_error,
)
from llama_retrieval_ext.knowledge_base.ledger.local_ledger import LocalLedger
from llama_retrieval_ext.knowledge_base.ledger.remote_journal import RemoteJournal
from llama_retrieval_ext.knowledge_base.ledger.remote_ledger import RemoteLedger
from llama_retrieval_ext.knowledge_base.readers.documents import DocumentKey
from llama_retrieval_ext.knowledge_base.storage import (
    RequestedSetup,
    Storage,
    missing,
    open_storage,
)
from llama_retrieval_ext.knowledge_base.write import StoreTarget, Writer, WriteTarget
from llama_retrieval_ext.query import source_in

_logger = logging.getLogger(__name__)


def open_ledger(
    storage: Storage, requested: KnowledgeBaseConfig, where: str, resources: ExitStack
) -> Ledger:
    """Open the ledger of a knowledge base; finish or undo changes interrupted by a crash.

    The requested configuration gets the settings of the storage. The resources close the ledger.
    """
    graph = "" if storage.graph is None else storage.graph.url
    requested = replace(requested, tokenizer=storage.tokenizer, params=storage.params, graph=graph)
    with storage.lock:
        ledger = storage.ledger()
        resources.callback(ledger.close)
        _set_up(ledger, storage, requested, where)
        # On a server another process may be writing; the next writer settles it.
        if storage.is_exclusive and ledger.n_nodes_at_rest() is None:
            writer_of(storage, ledger).settle()
        _check_in_step(ledger, storage, where)
        _check_graph(ledger, storage, where)
        _upgrade(ledger, storage, where)
    return ledger


def _set_up(ledger: Ledger, storage: Storage, requested: KnowledgeBaseConfig, where: str) -> None:
    if ledger.admit(requested, where):
        return
    # Without a ledger the embedding model is unknown. A process that dies between
    # creating the store and the ledger leaves an empty store.
    count = storage.count()
    if count:
        if ledger.admit(requested, where):  # another process has set it up meanwhile
            return
        raise unknown_nodes_error(where, count)
    ledger.update_config(lambda recorded: recorded or requested.as_new())
    ledger.admit(requested, where)


def _upgrade(ledger: Ledger, storage: Storage, where: str) -> None:
    """Record the sources of documents, which earlier formats do not contain."""
    config = ledger.config()
    if not isinstance(ledger, LocalLedger) or config is None or config.format >= FORMAT:
        return
    try:
        ledger.record_sources(_sources_of(storage, ledger))
        ledger.update_config(lambda recorded: recorded and replace(recorded, format=FORMAT))
    except StoreUnavailableError as error:  # without write permission it is still readable
        _logger.warning(
            "%s has format %d, and cannot be brought to format %d now: each page or row of a file "
            "counts as its own source (%s)",
            where,
            config.format,
            FORMAT,
            error,
        )


def _sources_of(storage: Storage, ledger: Ledger) -> dict[DocumentKey, str]:
    """Return the files of documents, from the metadata of their nodes."""
    ids = ledger.node_ids(each.key for each in ledger.visible(None))
    first = {own[0]: key for key, own in ids.items() if own}
    return {
        first[node.node_id]: source
        for node in storage.nodes(list(first))
        if (source := source_in(node.metadata))
    }


def _check_in_step(ledger: Ledger, storage: Storage, where: str) -> None:
    """Warn if the store was restored, cleared or extended without the ledger."""
    recorded, held = ledger.n_nodes_at_rest(), storage.count()
    if recorded == held:
        return
    recorded, held = ledger.n_nodes_at_rest(exact=True), storage.count()
    if recorded is None:
        _logger.info("%s is being written to, or its last writer died", where)
        return
    if held == recorded or recorded != ledger.n_nodes_at_rest(exact=True):
        return
    if held < recorded:
        _doubt_all(ledger, where)
    _logger.warning(
        "%s holds %d nodes, and %d were added through a knowledge base: something else has changed "
        "its store. Add the documents again to bring it in step",
        where,
        held,
        recorded,
    )


def _check_graph(ledger: Ledger, storage: Storage, where: str) -> None:
    """Warn if the graph was deleted or cleared by another program."""
    # On a server this would read the list of documents.
    ids = ledger.visible_ids(None, 1) if storage.graph and isinstance(ledger, LocalLedger) else []
    if storage.graph is None or not ids or ledger.n_nodes_at_rest() is None:
        return
    try:
        found = storage.graph.graph.nodes(ids, scope=None)
    except StoreUnavailableError as error:  # other searches still work
        _logger.warning("the graph %s of %s is down: %s", storage.graph.url, where, error)
        return
    if not found:
        _doubt_all(ledger, where)
        _logger.warning(
            "the graph %s does not have what was added to %s: something else has changed it. Add "
            "the documents again to bring it in step",
            storage.graph.url,
            where,
        )


def _doubt_all(ledger: Ledger, where: str) -> None:
    try:
        ledger.doubt_all()
    except StoreUnavailableError as error:  # a caller without write permission can continue
        _logger.warning("%s cannot note that it lost nodes: %s", where, error)


def writer_of(storage: Storage, ledger: Ledger) -> Writer:
    """Return a writer to a knowledge base."""
    targets: list[WriteTarget] = [StoreTarget(storage.store, storage.flush)]
    if storage.graph is not None:
        # The graph is first: its failures must not reach the store, which searches read.
        targets.insert(0, graph_target(storage.graph, ledger))
    return Writer(targets, _journal_of(storage, ledger), lock=storage.lock)


def graph_target(side: GraphSide, ledger: Ledger) -> GraphTarget:
    """Return the graph of a knowledge base as a target of writes."""
    config = ledger.config()
    return side.target(config.graph_key if config else "")


def _journal_of(storage: Storage, ledger: Ledger) -> Journal:
    if isinstance(ledger, RemoteLedger):
        return RemoteJournal(ledger, storage.nodes)
    if isinstance(ledger, LocalLedger):
        return LocalJournal(ledger.database)
    raise TypeError(f"{type(ledger).__name__} has no journal")


# Passages removed from a graph per transaction.
_WITHDRAWN: Final = 10_000


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
    setup = RequestedSetup(must_exist=True)
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
        raise missing(url)
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
