"""Where a knowledge base lives: what its URL says about its store, its ledger and its lock.

Removes a knowledge base.

Noted in the ledger that it is being removed → the nodes → the ledger. Whoever dies in between
leaves a knowledge base that cannot be opened, says why, and can be removed again; who dies earlier
or later leaves all of it, or nothing. In a folder the ledger's file goes before the store's own: a
crash between these two leaves an empty store without a ledger, which is no knowledge base.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import time

from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pydantic_core import to_jsonable_python

from llama_retrieval_ext.errors import ConfigurationError, StoreUnavailableError
from llama_retrieval_ext.ingest.contents import sources_of, stored_nodes
from llama_retrieval_ext.ingest.graph_side import GraphSide
from llama_retrieval_ext.ingest.graph_target import GraphTarget
from llama_retrieval_ext.ingest.journal import Journal, LocalJournal
from llama_retrieval_ext.ingest.ledger import (
    FORMAT,
    KnowledgeBaseConfig,
    Ledger,
    unknown_nodes_error,
)
from llama_retrieval_ext.ingest.local_ledger import LocalLedger, open_tables
from llama_retrieval_ext.ingest.remote_journal import RemoteJournal
from llama_retrieval_ext.ingest.remote_ledger import RemoteLedger
from llama_retrieval_ext.ingest.write import (
    StoreTarget,
    WriteLock,
    Writer,
    WriteTarget,
    lock_of,
)
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore
from llama_retrieval_ext.stores.open import check_url, open_store
from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.urls import Location

LEDGER = "ledger.sqlite3"
_SUFFIX = "__ledger"
# A batch is a few thousand nodes, which every engine takes in less.
_PATIENCE_S = 30.0
# How each engine keeps the nodes of a tenant together. The others index the tenant in any case.
BY_TENANT: Mapping[str, str] = {"milvus": "by_tenant", "elasticsearch": "routing"}


@dataclass(frozen=True, slots=True)
class Storage:
    """The parts of a knowledge base that its engine decides on.

    Attributes:
        store: The vector store, open.
        close: Closes the store; whoever opened the place calls it.
        flush: Brings what the store was given to disk.
        count: How many nodes the store holds.
        tokenizer: Settings of the store's tokenizer as JSON.
        params: Settings for the engine as JSON, for when it makes the collection; empty for none.
        ledger: Opens the ledger.
        lock: The same for everyone in this process who writes here.
        is_exclusive: Whether no other process can have it open.
        is_shared: Whether somebody else in this process has its files open.
        compact: Gives back the disk space of deleted nodes, where the engine does not; how many
            bytes.
        remove: Removes the nodes and then the ledger. Each time it is called it goes on where it
            was interrupted.
        graph: The graph that is written along; None for none.
    """

    store: BasePydanticVectorStore
    close: Callable[[], None]
    flush: Callable[[], None]
    count: Callable[[], int]
    tokenizer: str
    params: str
    ledger: Callable[[], Ledger]
    lock: WriteLock
    is_exclusive: bool
    is_shared: Callable[[], bool]
    compact: Callable[[], int]
    remove: Callable[[], None]
    graph: GraphSide | None = None

    def beside(self, graph: GraphSide | None) -> "Storage":
        """The same with a graph beside the store."""
        if graph is None:
            return self

        def close() -> None:
            try:
                self.close()
            finally:
                graph.close()

        return replace(
            self,
            graph=graph,
            close=close,
            compact=lambda: self.compact() + graph.graph.compact(),
        )


@dataclass(frozen=True, slots=True)
class RequestedSetup:
    """How a place is to be set up where it is new.

    Attributes:
        tokenizer: For keyword search; None for what the store has recorded, or the default.
        many_tenants: Whether the engine keeps the nodes of a tenant together; None for as it is,
            or no.
        store_params: Settings of the engine.
        must_exist: Whether it must not be new.
    """

    tokenizer: Tokenizer | None = None
    many_tenants: bool | None = None
    store_params: Mapping[str, object] | None = None
    must_exist: bool = False


def open_storage(url: str, setup: RequestedSetup) -> Storage:
    """The place that a URL names, opened or created.

    Args:
        url: As `open_store` takes it.
        setup: How it is set up where it is new.

    Raises:
        ConfigurationError: The URL names no engine, the engine has no such setting, or nothing is
            there that must be.
        StoreFormatError: The place holds something else.
        StoreUnavailableError: The engine cannot be reached, or another process has the directory.
        MissingDependencyError: The engine's extra is not installed.
    """
    check_url(url)
    location = Location.of(url)
    if location.collection.endswith(_SUFFIX):
        raise ConfigurationError(
            f"{url!r} names the ledger of a knowledge base; leave {_SUFFIX} out, or choose a name "
            "that does not end so"
        )
    if setup.must_exist:
        _check_exists(location, url)
    params = {**(setup.store_params or {}), **_grouping(location, setup)}
    store = open_store(url, tokenizer=setup.tokenizer, store_params=params)
    if isinstance(store, EmbeddedVectorStore):
        return _embedded(store, location)
    if not isinstance(store, CollectionStore):
        raise ConfigurationError(f"{type(store).__name__} cannot hold a knowledge base")
    try:
        beside = store.beside(_SUFFIX)
        patience_s = _PATIENCE_S if location.is_on_server else 0.0
        records = beside.records(is_shared=location.is_on_server, clock=time, patience_s=patience_s)
        ledger = RemoteLedger(records, count_stored=store.count, patience_s=patience_s)
        recorded = ledger.config()
    except BaseException:
        store.close()
        raise
    if recorded is None and setup.must_exist:
        ledger.close()
        store.close()
        raise missing(url)
    remembered = (
        setup if recorded is None else _remembered(setup, recorded, store.tokenizer, location)
    )
    if remembered != setup and store.dimension is None:
        # The store remembers how it is to be only once there is something in it.
        ledger.close()
        store.close()
        return open_storage(url, remembered)
    return Storage(
        store=store,
        close=store.close,
        # What these engines have taken is kept. Milvus Lite would make a file of every flush.
        flush=lambda: None,
        count=store.count,
        tokenizer=_as_json(store.tokenizer),
        params=json.dumps(to_jsonable_python(params), sort_keys=True) if params else "",
        ledger=lambda: ledger,
        lock=_lock_of(location),
        is_exclusive=not location.is_on_server,
        is_shared=lambda: False,  # who has it open is told when it writes
        compact=lambda: 0,
        remove=lambda: _drop(store, beside),
    )


def _embedded(store: EmbeddedVectorStore, location: Location) -> Storage:
    file = None if location.path is None else location.path / LEDGER
    return Storage(
        store=store,
        close=store.close,
        flush=store.persist,
        count=store.count,
        tokenizer=_as_json(store.tokenizer),
        params="",
        ledger=lambda: LocalLedger(open_tables(file)),
        lock=_lock_of(location),
        is_exclusive=True,
        is_shared=lambda: store.is_shared,
        compact=store.compact,
        remove=lambda: _delete(store, file),
    )


def _drop(*collections: CollectionStore) -> None:
    """Drop collections, one after the other."""
    for each in collections:
        each.clear()


def _delete(store: EmbeddedVectorStore, file: Path | None) -> None:
    """Delete the files of a store, and of its ledger, which is closed."""
    store.clear()
    for suffix in ("", "-wal", "-shm"):
        if file is not None:
            file.with_name(f"{file.name}{suffix}").unlink(missing_ok=True)
    store.remove()


def _as_json(tokenizer: Tokenizer) -> str:
    return json.dumps(tokenizer.to_dict(), sort_keys=True)


def _lock_of(location: Location) -> WriteLock:
    return WriteLock() if location.identity is None else lock_of(location.identity)


def _check_exists(location: Location, url: str) -> None:
    """Look for what is on this machine before the engine makes it."""
    if location.is_in_memory:
        raise in_memory(url)
    path = location.path
    if path is not None and location.engine == "embedded":
        path /= LEDGER
    if path is not None and not path.exists():
        raise missing(url)


def missing(url: str) -> ConfigurationError:
    """The error for a knowledge base that is not there."""
    return ConfigurationError(
        f"there is no knowledge base at {url}; check the URL. KnowledgeBase.open without "
        f"must_exist makes one, and so does: llama-retrieval ingest PATH --kb {url}"
    )


def in_memory(url: str) -> ConfigurationError:
    """The error for a knowledge base that nobody else can ever find."""
    return ConfigurationError(
        f"{url} is in memory: each time it is opened it is empty, and what is put there is gone "
        "when it is closed; name a directory, a file or a server"
    )


def _remembered(
    setup: RequestedSetup, recorded: KnowledgeBaseConfig, taken: Tokenizer, location: Location
) -> RequestedSetup:
    """The same, with what was said when it was opened before, where nothing is said now."""
    tokenizer, given = setup.tokenizer, setup.store_params
    if tokenizer is None and recorded.tokenizer not in ("", _as_json(taken)):
        tokenizer = Tokenizer.from_dict(json.loads(recorded.tokenizer))
    params, name = json.loads(recorded.params or "{}"), BY_TENANT.get(location.engine)
    many_tenants = params.pop(name, None)
    if setup.many_tenants is not None or name in (given or {}):
        many_tenants = setup.many_tenants
    return replace(
        setup,
        tokenizer=tokenizer,
        many_tenants=many_tenants,
        store_params=(params or None) if given is None else given,
    )


def _grouping(location: Location, setup: RequestedSetup) -> Mapping[str, object]:
    name = BY_TENANT.get(location.engine)
    return {} if name is None or setup.many_tenants is None else {name: setup.many_tenants}


_logger = logging.getLogger(__name__)


def open_ledger(place: Storage, asked: KnowledgeBaseConfig, where: str) -> Ledger:
    """The ledger of a place; what a crash left half done is finished or undone.

    Args:
        place: The store and where its ledger is.
        asked: What the one who opens it says.
        where: The knowledge base, for messages.

    Raises:
        StoreFormatError: The store holds nodes that no ledger knows, or the ledger is newer.
        ModelMismatchError: It was made with another embedding model.
        ConfigurationError: It was made with other settings.
        StoreUnavailableError: It cannot be read or written.
    """
    with place.lock:
        ledger = place.ledger()
        try:
            _set_up(ledger, place, asked, where)
            # What is half done on a server may be another process's work; who writes next settles.
            if place.is_exclusive and ledger.n_nodes_at_rest() is None:
                writer_of(place, ledger).settle()
            _check_in_step(ledger, place, where)
            _check_graph(ledger, place, where)
            _upgrade(ledger, place, where)
        except BaseException:
            ledger.close()
            raise
    return ledger


def _set_up(ledger: Ledger, place: Storage, asked: KnowledgeBaseConfig, where: str) -> None:
    if ledger.admit(asked, where):
        return
    # Without a ledger nobody knows which model made the vectors. An empty store is what remains
    # when the process dies between creating the store and its ledger.
    count = place.count()
    if count:
        if ledger.admit(asked, where):  # another process has set it up in this moment
            return
        raise unknown_nodes_error(where, count)
    ledger.update_config(lambda recorded: recorded or asked.as_new())
    ledger.admit(asked, where)


def _upgrade(ledger: Ledger, place: Storage, where: str) -> None:
    """Record what earlier formats have not: the sources of documents."""
    config = ledger.config()
    if not isinstance(ledger, LocalLedger) or config is None or config.format >= FORMAT:
        return
    try:
        ledger.record_sources(sources_of(place.store, ledger))
        ledger.update_config(lambda recorded: recorded and replace(recorded, format=FORMAT))
    except StoreUnavailableError as error:  # without the right to write it can be read all the same
        _logger.warning(
            "%s has format %d, and cannot be brought to format %d now: each page or row of a file "
            "counts as its own source (%s)",
            where,
            config.format,
            FORMAT,
            error,
        )


def _check_in_step(ledger: Ledger, place: Storage, where: str) -> None:
    """Warn if the store was changed without the ledger: restored, cleared, added to."""
    known, held = ledger.n_nodes_at_rest(), place.count()
    if known == held:
        return
    known, held = ledger.n_nodes_at_rest(exact=True), place.count()
    if known is None:
        _logger.info("%s is being written to, or its last writer died", where)
        return
    if held == known or known != ledger.n_nodes_at_rest(exact=True):
        return
    if held < known:
        _doubt_all(ledger, where)
    _logger.warning(
        "%s holds %d nodes, and %d were added through a knowledge base: something else has changed "
        "its store. Add the documents again to bring it in step",
        where,
        held,
        known,
    )


def _check_graph(ledger: Ledger, place: Storage, where: str) -> None:
    """Warn if the graph was lost: deleted, or cleared by something else."""
    # On a server it would take reading the list of documents.
    ids = ledger.sample(None, 1) if place.graph and isinstance(ledger, LocalLedger) else []
    if place.graph is None or not ids or ledger.n_nodes_at_rest() is None:
        return
    try:
        found = place.graph.graph.nodes(ids, scope=None).function()
    except StoreUnavailableError as error:  # other searches work all the same
        _logger.warning("the graph %s of %s is down: %s", place.graph.url, where, error)
        return
    if not found:
        _doubt_all(ledger, where)
        _logger.warning(
            "the graph %s does not have what was added to %s: something else has changed it. Add "
            "the documents again to bring it in step",
            place.graph.url,
            where,
        )


def _doubt_all(ledger: Ledger, where: str) -> None:
    try:
        ledger.doubt_all()
    except StoreUnavailableError as error:  # who may only read can do so all the same
        _logger.warning("%s cannot note that it lost nodes: %s", where, error)


def writer_of(place: Storage, ledger: Ledger) -> Writer:
    """Return a writer to a knowledge base."""
    targets: list[WriteTarget] = [StoreTarget(place.store, place.flush)]
    if place.graph is not None:
        # First: what fails there is not in the store, where searches would find it.
        targets.insert(0, graph_target(place.graph, ledger))
    return Writer(targets, _journal_of(place, ledger), lock=place.lock)


def graph_target(side: GraphSide, ledger: Ledger) -> GraphTarget:
    """Return the graph of a knowledge base as a target of writes."""
    config = ledger.config()
    return GraphTarget(side.graph, side.links, config.graph_key if config else "")


def _journal_of(place: Storage, ledger: Ledger) -> Journal:
    if isinstance(ledger, RemoteLedger):
        return RemoteJournal(ledger, partial(stored_nodes, place.store))
    if isinstance(ledger, LocalLedger):
        return LocalJournal(ledger.database)
    raise TypeError(f"{type(ledger).__name__} has no journal")
