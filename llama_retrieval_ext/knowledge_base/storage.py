"""`Storage`: the store, ledger and lock of a URL; `Access`: the checks of each operation."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from threading import RLock
from time import time

from llama_index.core.schema import BaseNode
from pydantic_core import to_jsonable_python

from llama_retrieval_ext.errors import (
    ConfigurationError,
    ModelRequiredError,
    ScopeRequiredError,
    StoreClosedError,
)
from llama_retrieval_ext.filter_syntax import as_metadata_filters
from llama_retrieval_ext.knowledge_base.correcting import StoredWords, words_of
from llama_retrieval_ext.knowledge_base.documents import batched
from llama_retrieval_ext.knowledge_base.graph import GraphSide, GraphTarget
from llama_retrieval_ext.knowledge_base.ledger.config import MANY_TENANTS, KnowledgeBaseConfig
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.ledger.prepared import Prepared, Writable
from llama_retrieval_ext.knowledge_base.ledger.records import Entry
from llama_retrieval_ext.knowledge_base.ledger.sqlite_records import SqliteRecords
from llama_retrieval_ext.knowledge_base.write import lock_of
from llama_retrieval_ext.scope import Scope, check_principals, check_scope, isolates
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.encoding.node_json import row_id
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.stores.open import check_url, open_store
from llama_retrieval_ext.text.correction import Vocabulary
from llama_retrieval_ext.text.normalization import composed
from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.urls import Location
from llama_retrieval_ext.wording import path_tails

LEDGER = "ledger.sqlite3"
_SUFFIX = "__ledger"
# Every engine stores a batch, a few thousand nodes, in less time.
_PATIENCE_S = 30.0
# The setting with which an engine groups nodes by tenant. Other engines always group them.
_BY_TENANT: Mapping[str, str] = {"milvus": "by_tenant", "elasticsearch": "routing"}


# Nodes per request, held in memory with their embeddings.
_MANY_NODES = 1000


def grouping_name(location: Location) -> str:
    """Return the name of ``many_tenants`` in the recorded settings of an engine."""
    return _BY_TENANT.get(location.engine, MANY_TENANTS)


def batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Yield lists of documents with about a thousand nodes each."""
    return batched(entries, lambda entry: entry.n_nodes, _MANY_NODES)


@dataclass(frozen=True, slots=True)
class Storage:
    """A store with its ledger, and a graph beside them if there is one; a `WriteTarget`."""

    url: str  # as messages name it
    store: EngineStore
    ledger: Ledger
    params: str  # engine settings as JSON, applied when it creates the collection
    lock: RLock  # shared by all writers of this process
    words: StoredWords  # by which typing errors in questions are corrected
    is_exclusive: bool  # whether no other process can open it
    graph: GraphSide | None = None

    def nodes(self, ids: Sequence[str], *, embeddings: bool = True) -> Iterator[BaseNode]:
        """Yield the nodes with these ids, in this order; missing ones are omitted."""
        for start in range(0, len(ids), _MANY_NODES):
            read = self.store.get_nodes if embeddings else self.store.read_nodes
            yield from read(node_ids=list(ids[start : start + _MANY_NODES]))

    def text_of(self, node: BaseNode) -> str:
        """Return all that is searched of a node, as one text, whose fields share no word."""
        return "\n\n".join(self.store.indexed_schema.texts(node).values())

    def unnoted(self, scope: Scope | None, vocabulary: Vocabulary) -> int | None:
        """Return the number of changes of the store that the words have not noted.

        None if a vocabulary lacks a text of a scope, or others may change the store.
        """
        if not isinstance(self.store, EmbeddedVectorStore):
            return None
        with self.lock:  # all that is written by the knowledge base is noted
            filters = None if scope is None else as_metadata_filters(scope.condition)
            is_whole = self.store.count(filters) == len(vocabulary)
            return self.store.n_changes - self.words.n_noted if is_whole else None

    def check(self, documents: Sequence[Writable]) -> None:
        """Raise if there is no room; the journal, in the same place, is written first."""
        self.store.check_room(map(attrgetter("size_bytes"), documents))

    def upsert(self, documents: Sequence[Prepared], slot: int) -> None:
        """Write the nodes of documents to their rows in a slot."""
        nodes = [node for document in documents for node in document.nodes]
        rows = nodes
        if slot:
            rows = [node.model_copy(update={"id_": row_id(node.node_id, slot)}) for node in nodes]
        try:
            self.store.add_rows(rows)
        except BaseException:
            self.words.forget()  # a part of them may be written
            raise
        self.words.write(nodes, slot)

    def delete(self, node_ids: Sequence[str], slot: int) -> None:
        """Delete the rows of nodes in a slot; missing ones are ignored."""
        self.store.delete_rows([row_id(node_id, slot) for node_id in node_ids])
        self.words.delete(node_ids, slot)

    def flush(self) -> None:
        """Write pending changes to disk."""
        self.store.flush()

    def record_dimension(self, dimension: int) -> None:
        """Record the dimension of the vectors before the first is stored.

        A store whose nodes were all deleted may have had another one; it is made anew.
        """
        self.ledger.record_dimension(dimension)
        is_other = self.store.dimension not in (None, dimension)
        if is_other and self.ledger.n_nodes_at_rest(exact=True) == 0:
            self.store.clear()
            self.words.forget()

    def compact(self) -> int:
        """Free the disk space of deleted nodes if the engine does not; return the bytes."""
        return self.store.compact() + (0 if self.graph is None else self.graph.graph.compact())

    def beside(self, graph: GraphSide, resources: ExitStack) -> "Storage":
        """Return this storage with a graph, which is closed with the resources."""
        resources.callback(graph.close)
        return replace(self, graph=graph)

    def remove(self) -> None:
        """Remove the nodes, then the ledger, then what is left of the store; can be repeated."""
        self.store.clear()
        self.ledger.records.remove()
        self.store.remove()

    def graph_target(self) -> GraphTarget | None:
        """Return the graph as a target of writes; None without one."""
        if self.graph is None:
            return None
        config = self.ledger.config()
        return self.graph.target(config.graph_key if config else "")

    def close(self) -> None:
        """Close the ledger and the store."""
        with closing(self.store):
            self.ledger.close()


@dataclass(frozen=True, slots=True)
class RequestedSetup:
    """Settings for a new storage; None for recorded ones, or defaults."""

    tokenizer: Tokenizer | None = None
    many_tenants: bool | None = None
    store_params: Mapping[str, object] | None = None
    must_exist: bool = False
    may_create: bool = True  # whether the error for a missing one proposes to create it


def open_storage(url: str, setup: RequestedSetup) -> Storage:
    """Open or create the storage that a URL names."""
    check_url(url)
    location = Location.of(url)
    if location.collection.endswith(_SUFFIX):
        raise ConfigurationError(
            f"{url!r} names the ledger of a knowledge base; leave {_SUFFIX} out, or choose a name "
            "that does not end so"
        )
    if setup.must_exist and (location.is_in_memory or not _may_exist(location)):
        no_such = (
            in_memory(url) if location.is_in_memory else missing(url, to_create=setup.may_create)
        )
        raise no_such
    params = dict(setup.store_params or {})
    grouping = {} if setup.many_tenants is None else {grouping_name(location): setup.many_tenants}
    has_setting = location.engine in _BY_TENANT
    store = open_store(
        url, tokenizer=setup.tokenizer, store_params={**params, **(grouping if has_setting else {})}
    )
    try:
        ledger = _open_ledger(store, location)
        # The directory of the embedded engine records its settings.
        recorded = ledger.config() if ledger.file is None else None
    except BaseException:
        store.close()
        raise
    if recorded is None and ledger.file is None and setup.must_exist:
        store.close()
        raise missing(url, to_create=setup.may_create)
    remembered = _remembered(setup, recorded, store.tokenizer, location)
    if remembered != setup and store.dimension is None:  # it has not recorded its settings
        store.close()
        return open_storage(url, remembered)
    words = words_of(location.identity)
    if isinstance(store, EmbeddedVectorStore):
        store.leave_out(words.absent)
    return Storage(
        url,
        store,
        ledger,
        _recorded({**(params if ledger.file is None else {}), **grouping}),
        lock_of(location.identity),
        words,
        is_exclusive=not location.is_on_server,
    )


def _open_ledger(store: EngineStore, location: Location) -> Ledger:
    """Open the ledger beside a store: in a file or in memory, or in a collection of its own."""
    if isinstance(store, EmbeddedVectorStore):
        with lock_of(location.identity):  # one object creates the file
            records = SqliteRecords(None if location.path is None else location.path / LEDGER)
        return Ledger(records, count_stored=store.count)
    if not isinstance(store, CollectionStore):
        raise ConfigurationError(f"{type(store).__name__} cannot hold a knowledge base")
    is_shared = location.is_on_server
    patience_s = _PATIENCE_S if is_shared else 0.0
    beside = store.beside(_SUFFIX)
    return Ledger(
        beside.records(is_shared=is_shared, clock=time, patience_s=patience_s),
        count_stored=store.count,
        patience_s=patience_s,
    )


def _recorded(params: Mapping[str, object]) -> str:
    return json.dumps(to_jsonable_python(params), sort_keys=True) if params else ""


def tokenizer_json(tokenizer: Tokenizer) -> str:
    """Return a tokenizer as JSON, as it is recorded."""
    return json.dumps(tokenizer.to_dict(), sort_keys=True)


def check_recorded(url: str) -> None:
    """Raise if no knowledge base on this machine has recorded an embedding model."""
    check_url(url)
    location = Location.of(url)
    if location.is_in_memory or not _may_exist(location):
        raise model_needed(url)


def _may_exist(location: Location) -> bool:
    path = location.path
    if path is not None and location.engine == "embedded":
        path /= LEDGER
    return path is None or path.exists()


def model_needed(url: str) -> ModelRequiredError:
    """Return the error for a new knowledge base without an embedding model."""
    return ModelRequiredError(
        f"KnowledgeBase.open needs embed_model= for {url}, which does not exist yet; there is no "
        "default: pass a LlamaIndex embedding model, or 'local' (no network, extra 'local'), "
        "'huggingface:NAME', ..."
    )


def missing(url: str, *, to_create: bool = True) -> ConfigurationError:
    """Return the error for a knowledge base that does not exist."""
    advice = f", or create it: KnowledgeBase.open({url!r})" if to_create else ""
    return ConfigurationError(f"there is no knowledge base at {url}; check the URL{advice}")


def in_memory(url: str) -> ConfigurationError:
    """Return the error for a knowledge base in memory, which only one object can see."""
    return ConfigurationError(
        f"{url} is in memory: each time it is opened it is empty, and what is put there is gone "
        "when it is closed; name a directory, a file or a server"
    )


def _remembered(
    setup: RequestedSetup,
    recorded: KnowledgeBaseConfig | None,
    current: Tokenizer,
    location: Location,
) -> RequestedSetup:
    """Return the settings, with recorded values for missing ones."""
    if recorded is None:
        return setup
    tokenizer, given = setup.tokenizer, setup.store_params
    if tokenizer is None and recorded.tokenizer not in ("", tokenizer_json(current)):
        tokenizer = Tokenizer.from_dict(json.loads(recorded.tokenizer))
    params, name = json.loads(recorded.params or "{}"), grouping_name(location)
    many_tenants = params.pop(name, None)
    if setup.many_tenants is not None or name in (given or {}):
        many_tenants = setup.many_tenants
    return replace(
        setup,
        tokenizer=tokenizer,
        many_tenants=many_tenants,
        store_params=(params or None) if given is None else given,
    )


class Access:
    """The checks at the start of each operation, shared by the parts of a knowledge base."""

    def __init__(
        self, url: str, *, require_scope: bool, require_principals: bool, is_copy: bool
    ) -> None:
        self.url = url
        self.require_scope = require_scope
        self.require_principals = require_principals
        self.is_copy = is_copy
        self.is_closed = False

    def check_open(self) -> None:
        """Raise if the knowledge base was closed."""
        if self.is_closed:
            raise StoreClosedError(f"{self.url} was closed; open it again")

    def check(self, scope: Scope | None, *, to_write: bool = False) -> None:
        """Raise if it was closed, or if a required scope or its principals are missing.

        To write, it must not have been opened with ``read_only=True``; principals are not needed.
        """
        if to_write:
            self.check_writable()
        self.check_open()
        if scope is not None:
            check_scope(scope)
        if self.require_scope and not isolates(scope):
            raise ScopeRequiredError(f"{self.url} requires a scope; pass scope=Scope(...)")
        if self.require_principals and not to_write:
            check_principals(scope, self.url)

    def check_writable(self) -> None:
        """Raise if it was opened with ``read_only=True``."""
        if self.is_copy:
            raise ConfigurationError(
                "this knowledge base was opened to read only; open it without read_only to write"
            )


def documents_named(ledger: Ledger, name: str, scope: Scope | None) -> list[Entry]:
    """Return the documents of a source or id, or of the one source whose path ends with the name.

    So names as views print them are names that every call takes.

    Raises:
        ConfigurationError: The name is empty, or the end of several paths.
    """
    if entries := ledger.find(name, scope):
        return entries
    tail = composed(Path(name.replace("\\", "/")).as_posix())
    # Without a scope, a name means documents in no scope.
    sources = {
        entry.source
        for entry in ledger.visible(scope)
        if scope is not None or not any(map(str.strip, (entry.key.tenant, entry.key.kb)))
    }
    named = sorted(source for source in sources if tail in path_tails(composed(source)))
    if len(named) > 1:
        listed = ", ".join(map(repr, named))
        raise ConfigurationError(f"{name!r} names {len(named)} files; write one of {listed}")
    return ledger.find(named[0], scope) if named else []
