"""Opens a knowledge base, and removes one.

Removal marks the ledger, then deletes the nodes, then the ledger. If it is interrupted after the
mark, opening the knowledge base raises an error with the reason, and removal can be repeated. In a
folder the ledger's file is deleted before the store's: a crash in between leaves an empty store
without a ledger, which is not a knowledge base.
"""

import json
import logging
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Final

from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.embeddings.recorded import RecordedEmbedding, model_record
from llama_retrieval_ext.embeddings.resolve import embed_model_dimension, embed_model_name
from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.open import Graph
from llama_retrieval_ext.graph.passage_links import PassageLinks
from llama_retrieval_ext.knowledge_base.adding import IngestionParts
from llama_retrieval_ext.knowledge_base.graph import open_graph_side, open_recorded
from llama_retrieval_ext.knowledge_base.ledger.config import (
    KnowledgeBaseConfig,
    unknown_nodes_error,
)
from llama_retrieval_ext.knowledge_base.ledger.journal import Journal
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.ledger.sqlite_records import SqliteRecords
from llama_retrieval_ext.knowledge_base.preparation import Preparation
from llama_retrieval_ext.knowledge_base.sharing import copies_until_now
from llama_retrieval_ext.knowledge_base.storage import (
    RequestedSetup,
    Storage,
    missing,
    model_needed,
    open_storage,
    tokenizer_json,
)
from llama_retrieval_ext.knowledge_base.write import Writer, WriteTarget
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.stores.embedded.files import damaged_error
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.wording import counted

_logger = logging.getLogger(__name__)


def with_graph(
    storage: Storage,
    graph: Graph | None,
    links: PassageLinks | None,
    where: str,
    resources: ExitStack,
) -> Storage:
    """Return a storage under its name, with its graph, if any; the resources close both."""
    resources.callback(storage.close)
    storage = replace(storage, url=where)
    if graph is None:
        return storage
    return storage.beside(open_graph_side(graph, links, where), resources)


def requested_config(
    embed_model: str | BaseEmbedding | None,
    model: BaseEmbedding | None,
    *,
    require_scope: bool | None,
    schema: Schema | None,
    history: bool = False,
) -> KnowledgeBaseConfig:
    """Return the settings that a call of `KnowledgeBase.open` asks for."""
    fields = "" if schema is None else json.dumps(schema.to_dict())
    if model is None:
        return KnowledgeBaseConfig("", require_scope=require_scope, schema=fields, history=history)
    return KnowledgeBaseConfig(
        embed_model_name(model),
        require_scope=require_scope,
        dimension=embed_model_dimension(model),
        model_record=model_record(model, embed_model if isinstance(embed_model, str) else ""),
        schema=fields,
        history=history,
    )


def recorded_model(config: KnowledgeBaseConfig) -> BaseEmbedding:
    """Return the embedding model that a configuration names, which is built at its first use."""
    return RecordedEmbedding(
        recorded_name=config.embed_model, record=config.model_record, dimension=config.dimension
    )


def ingestion_parts(
    storage: Storage, preparation: Preparation, *, extracts: bool
) -> IngestionParts:
    """Return what adds documents; with ``extracts`` it writes to the graph what extractors find."""
    writer = writer_of(storage)
    if preparation.keeps_history:
        writer.history = partial(copies_until_now, storage)
    target = storage.graph_target() if extracts else None
    return IngestionParts(preparation, writer, storage, target)


def set_up(storage: Storage, requested: KnowledgeBaseConfig) -> KnowledgeBaseConfig:
    """Set up or check a knowledge base; finish or undo changes interrupted by a crash.

    The requested configuration gets the settings of the storage.

    Returns:
        The recorded configuration.
    """
    ledger, where = storage.ledger, storage.url
    requested = replace(
        requested,
        tokenizer=tokenizer_json(storage.store.tokenizer),
        params=storage.params,
        graph="" if storage.graph is None else storage.graph.url,
    )
    with storage.lock:
        _admit(storage, requested)
        # On a server another process may be writing; the next writer settles it.
        if storage.is_exclusive and ledger.n_nodes_at_rest() is None:
            try:
                writer_of(storage).settle()
            except StoreUnavailableError as error:  # searches still work
                _logger.warning("an interrupted change stays unfinished for now: %s", error)
        if ledger.file is not None:
            _check_files(storage, ledger.file)
            ledger.file.is_checked = True
        _check_in_step(storage)
        _check_graph(storage)
    config = ledger.config()
    if config is None:  # it was removed meanwhile
        raise missing(where)
    if config.schema:
        storage.store.use_schema(Schema.from_dict(json.loads(config.schema)))
    return config


def _admit(storage: Storage, requested: KnowledgeBaseConfig) -> None:
    ledger, where = storage.ledger, storage.url
    if ledger.admit(requested, where):
        return
    # Without a ledger the embedding model is unknown. A process that dies between
    # creating the store and the ledger leaves an empty store.
    count = storage.store.count()
    if count:
        if ledger.admit(requested, where):  # another process has set it up meanwhile
            return
        raise unknown_nodes_error(where, count)
    if not requested.embed_model:
        raise model_needed(where)
    ledger.update_config(lambda recorded: recorded or requested.as_new())
    ledger.admit(requested, where)


def _check_files(storage: Storage, file: SqliteRecords) -> None:
    """Raise if nodes of the ledger are missing after an unclean end."""
    store, target = storage.store, storage.graph_target()
    graph = None if storage.graph is None else storage.graph.graph
    if not isinstance(store, EmbeddedVectorStore) or store.is_shared:
        return
    if (
        file.was_closed
        and store.was_closed
        and (not isinstance(graph, EmbeddedGraph) or graph.was_closed)
    ):
        return
    ids = storage.ledger.settled_node_ids()
    missing = {"the store": store.missing(ids)}
    if target is not None and isinstance(graph, EmbeddedGraph):
        sources = graph.sources()
        missing["the graph"] = [
            id_ for id_ in ids if sources.isdisjoint(target.source(id_, slot) for slot in (0, 1))
        ]
    for place, lost in missing.items():
        if lost:
            nodes = f"{counted(len(lost), 'node')}, such as {lost[0]!r}"
            raise damaged_error(storage.url, f"{place} does not have {nodes}")


def _check_in_step(storage: Storage) -> None:
    """Warn if the store was restored, cleared or extended without the ledger."""
    ledger, where = storage.ledger, storage.url
    recorded, held = ledger.n_nodes_at_rest(), storage.store.count()
    if recorded == held:
        return
    recorded, held = ledger.n_nodes_at_rest(exact=True), storage.store.count()
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


def _check_graph(storage: Storage) -> None:
    """Warn if the graph was deleted or cleared by another program."""
    ledger, where = storage.ledger, storage.url
    # On a server this would read the list of documents.
    ids = ledger.visible_ids(None, 1) if storage.graph and ledger.file else []
    if storage.graph is None or not ids or ledger.n_nodes_at_rest() is None:
        return
    try:
        nodes = storage.graph.graph.nodes(ids, scope=None)
    except StoreUnavailableError as error:  # other searches still work
        _logger.warning("the graph %s of %s is down: %s", storage.graph.url, where, error)
        return
    if not nodes:
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


def writer_of(storage: Storage) -> Writer:
    """Return a writer to a knowledge base."""
    graph = storage.graph_target()
    # The graph is first: its failures must not reach the store, which searches read.
    targets: list[WriteTarget] = [storage] if graph is None else [graph, storage]
    nodes = partial(storage.nodes, embeddings=False)
    return Writer(targets, Journal(storage.ledger, nodes), lock=storage.lock)


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
        if storage.store.is_shared:
            raise StoreUnavailableError(f"{url} is open in this process; close it first")
        config = _mark_removing(storage.ledger, url)
        ids = storage.ledger.visible_ids(None) if config.graph else []
        if ids:
            with closing(open_recorded(config.graph, url)) as graph:
                target = graph.target(config.graph_key)
                for start in range(0, len(ids), _WITHDRAWN):
                    target.delete(ids[start : start + _WITHDRAWN])
        storage.remove()


def _mark_removing(ledger: Ledger, url: str) -> KnowledgeBaseConfig:
    config = ledger.config()
    if config is None:
        raise missing(url, to_create=False)
    config.check_format(url)
    if config.removing:
        return config
    # Mark first, then check for claims: a writer claims first, then checks for the mark.
    ledger.update_config(lambda recorded: recorded and replace(recorded, removing=True))
    try:
        ledger.check_unwritten(url)
    except BaseException:
        ledger.update_config(lambda recorded: recorded and replace(recorded, removing=False))
        raise
    return config
