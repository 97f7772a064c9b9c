"""Where a knowledge base lives: what its URL says about its store, its ledger and its lock."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.ingest.companion.companion import Companion
from llama_retrieval_ext.ingest.companion.mirror import Mirror
from llama_retrieval_ext.ingest.companion.mirrored_ledger import MirroredLedger
from llama_retrieval_ext.ingest.database import Database
from llama_retrieval_ext.ingest.ledger import Ledger
from llama_retrieval_ext.ingest.location import Location
from llama_retrieval_ext.ingest.schema import SCHEMA
from llama_retrieval_ext.ingest.write_lock import WriteLock, lock_of
from llama_retrieval_ext.stores.collection_store import CollectionStore
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.opening import check_url, open_store
from llama_retrieval_ext.text.tokenizer import Tokenizer

LEDGER = "ledger.sqlite3"
_SUFFIX = "__ledger"
# A batch is a few thousand nodes, which every engine takes in less.
_PATIENCE_S = 30.0
# How each engine keeps the nodes of a tenant together. The others index the tenant in any case.
_BY_TENANT: Mapping[str, Mapping[str, object]] = {
    "milvus": {"by_tenant": True},
    "elasticsearch": {"routing": True},
}


@dataclass(frozen=True, slots=True)
class Place:
    """The parts of a knowledge base that its engine decides on.

    Attributes:
        store: The vector store, open.
        close: Closes the store; whoever opened the place calls it.
        flush: Brings what the store was given to disk.
        count: How many nodes the store holds.
        tokenizer: Settings of the store's tokenizer as JSON.
        ledger: Opens the ledger.
        lock: The same for everyone in this process who writes here.
        is_exclusive: Whether no other process can have it open.
    """

    store: BasePydanticVectorStore
    close: Callable[[], None]
    flush: Callable[[], None]
    count: Callable[[], int]
    tokenizer: str
    ledger: Callable[[], Ledger]
    lock: WriteLock
    is_exclusive: bool


@dataclass(frozen=True, slots=True)
class Setup:
    """How a place is to be set up where it is new.

    Attributes:
        tokenizer: For keyword search; None for what the store has recorded, or the default.
        many_tenants: Whether the engine keeps the nodes of a tenant together.
        store_params: Settings of the engine.
        must_exist: Whether it must not be new.
    """

    tokenizer: Tokenizer | None = None
    many_tenants: bool = False
    store_params: Mapping[str, object] | None = None
    must_exist: bool = False


def open_place(url: str, setup: Setup) -> Place:
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
        mirror = Mirror(Companion(store.beside(_SUFFIX)))
    except BaseException:
        store.close()
        raise
    patience_s = _PATIENCE_S if location.is_on_server else 0.0
    ledger = MirroredLedger(mirror, held=store.count, patience_s=patience_s)
    recorded = ledger.manifest()
    if recorded is None and setup.must_exist:
        ledger.close()
        store.close()
        raise missing(url)
    told = "" if recorded is None or setup.tokenizer is not None else recorded.tokenizer
    if told and store.dimension is None and told != _as_json(store.tokenizer):
        # The store remembers its tokenizer only once there is something in it.
        ledger.close()
        store.close()
        return open_place(url, replace(setup, tokenizer=Tokenizer.from_dict(json.loads(told))))
    return Place(
        store=store,
        close=store.close,
        # What these engines have taken is kept. Milvus Lite would make a file of every flush.
        flush=lambda: None,
        count=store.count,
        tokenizer=_as_json(store.tokenizer),
        ledger=lambda: ledger,
        lock=_lock_of(location),
        is_exclusive=not location.is_on_server,
    )


def _embedded(store: EmbeddedVectorStore, location: Location) -> Place:
    file = None if location.path is None else location.path / LEDGER
    return Place(
        store=store,
        close=store.close,
        flush=store.persist,
        count=store.count,
        tokenizer=_as_json(store.tokenizer),
        ledger=lambda: Ledger(Database(file, SCHEMA)),
        lock=_lock_of(location),
        is_exclusive=True,
    )


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
        f"there is no knowledge base at {url}; make it with KnowledgeBase.open, without "
        f"must_exist, or with: llama-retrieval ingest PATH --kb {url}"
    )


def in_memory(url: str) -> ConfigurationError:
    """The error for a knowledge base that nobody else can ever find."""
    return ConfigurationError(
        f"{url} is in memory: each time it is opened it is empty, and what is put there is gone "
        "when it is closed; name a directory, a file or a server"
    )


def _grouping(location: Location, setup: Setup) -> Mapping[str, object]:
    return _BY_TENANT.get(location.engine, {}) if setup.many_tenants else {}
