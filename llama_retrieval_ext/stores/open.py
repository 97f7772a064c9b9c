"""Opening a store by URL, and the backend for a URL, store or index."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.indices.vector_store.base import VectorStoreIndex
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.storage.storage_context import StorageContext
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.errors import ConfigurationError, optional_module
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.stores.embedded.files import EmbeddedParams, is_new
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.backend import Backend, EngineFeatures
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore
from llama_retrieval_ext.stores.engine.search import EngineBackend
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.stores.generic import GenericBackend, Lookup
from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.urls import ENGINES, shown_url


class StoreNodes:
    """The nodes of a vector store in place of a docstore; each look reads all of them."""

    def __init__(self, read: Callable[[], list[BaseNode]]) -> None:
        self._read = read
        self._nodes: dict[str, BaseNode] = {}

    def hashes(self) -> dict[str, str]:
        """Return the hash of each node by id."""
        self._nodes = {node.node_id: node for node in self._read()}
        return {node_id: node.hash for node_id, node in self._nodes.items()}

    def take(self, ids: Iterable[str]) -> list[BaseNode]:
        """Return the nodes with these ids as the last look found them; the rest is forgotten."""
        nodes, self._nodes = self._nodes, {}
        return [nodes[node_id] for node_id in ids]


@dataclass(frozen=True, slots=True)
class StoredTexts:
    """The docstore beside a vector store, or the nodes of one that can be read as a whole.

    Attributes:
        docstore: The docstore.
        has: Whether the vector store has the node with an id. An index leaves the texts of deleted
            documents in its docstore.
    """

    docstore: BaseDocumentStore | StoreNodes
    has: Callable[[str], bool] = lambda _: True

    @classmethod
    def beside(cls, source: "StoreSource") -> "StoredTexts | None":
        """Return the texts for keyword search of a source without one; None if there are none.

        A docstore without nodes beside a store that keeps texts is no docstore.
        """
        texts, backend = source.texts, source.backend
        if texts is not None and not (backend.store.stores_text and texts.is_empty):
            return texts
        reading = backend.all_nodes() if isinstance(backend, EngineBackend) else None
        return None if reading is None else cls(StoreNodes(reading.function))

    @property
    def is_empty(self) -> bool:
        """Whether the docstore has no nodes; an index leaves hashes of documents there."""
        if isinstance(self.docstore, StoreNodes):
            return False
        ids = self.docstore.get_all_document_hashes().values()
        return not any(map(self.docstore.document_exists, ids)) and not self.docstore.docs


@dataclass(frozen=True, slots=True)
class StoreSource:
    """A backend, with the embedding model, the objects and the docstore of its index."""

    backend: Backend
    embed_model: BaseEmbedding | None = None
    objects: Mapping[str, object] = field(default_factory=dict)
    texts: StoredTexts | None = None


Storage: TypeAlias = (
    str | BasePydanticVectorStore | VectorStoreIndex | StorageContext | Backend | StoreSource
)


@checked_call
def open_store(
    url: str,
    *,
    tokenizer: Tokenizer | None = None,
    distance: Distance | None = None,
    store_params: Mapping[str, object] | None = None,
    must_exist: bool = False,
    schema: Schema | None = None,
) -> EngineStore:
    """Open or create the store at a URL; the caller closes it.

    Args:
        url: ``embedded:DIRECTORY``, or ``embedded::memory:`` for one that is discarded when closed;
            ``qdrant://host:6333/collection``, ``milvus://host:19530/collection`` or
            ``elasticsearch://host:9200/index``. The URL's query names the environment
            variables that hold the credentials.
        tokenizer: For keyword search; None for the recorded one, or the default.
        distance: How embeddings are compared: ``cosine``, ``dot`` or ``euclid``; None for the
            recorded one, or cosine.
        store_params: Settings of the engine, applied when it creates the collection. Qdrant: those
            of its "create collection", ``vector``, ``sparse_vector`` and ``search``. Milvus: the
            fields of ``MilvusParams``, such as ``index_params``, in Milvus's form. Elasticsearch:
            the fields of ``IndexParams``, or ``body``. Embedded: ``vectors``, ``index`` and
            ``min_free_bytes``, as for `EmbeddedVectorStore`; the last two may differ each time.
            Settings for searches (``search``, ``search_params``, ``num_candidates``) apply to this
            object. For an
            existing collection, all others must equal the recorded ones, or be left out.
        must_exist: Whether a missing store is an error; if so, no store is created.
        schema: The fields of keyword search, with weights; None for the recorded ones, or title,
            headings and everything. A new field is searched after the store's ``index_fields()``.

    Raises:
        ConfigurationError: The URL names no engine, the engine has no such setting, the collection
            was created with another value, or it is missing and must exist.
        StoreFormatError: The directory holds something else.
        StoreUnavailableError: The engine cannot be reached, or another process has the directory.
        MissingDependencyError: The engine's extra is not installed.

    Examples:
        >>> with open_store("embedded::memory:") as store:
        ...     store.count()
        0

    """
    check_url(url)
    scheme, _, place = url.partition(":")
    _check_host(scheme, place)
    if place and scheme == _EMBEDDED:
        setup = EmbeddedParams.of(store_params or {})
        if must_exist and is_new(place):
            raise _missing(url)
        return EmbeddedVectorStore(
            place, tokenizer=tokenizer, distance=distance, schema=schema, **asdict(setup)
        )
    if place and scheme in ENGINES:
        engine = ENGINES[scheme]
        store_type: type[CollectionStore] = getattr(_import(engine, "store"), f"open_{engine}")
        if must_exist and store_type.is_new(url):
            raise _missing(url)
        opened = store_type(
            url, tokenizer=tokenizer, distance=distance, store_params=store_params, schema=schema
        )
        if must_exist and opened.dimension is None:  # these engines record it with the collection
            opened.close()
            raise _missing(url)
        return opened
    schemes = (_EMBEDDED, *ENGINES)
    near = [] if scheme in schemes else difflib.get_close_matches(scheme, schemes, n=1)
    is_path = scheme == url and any(sign in url for sign in "./\\~")
    meant = f"embedded:{url}" if is_path else f"{near[0]}:..." if near else ""
    if scheme in _WEB:
        meant = _engine_at(url)
    advice = f"; did you mean {meant}?" if meant else "."
    raise ConfigurationError(
        f"{shown_url(url)} is not a store URL{advice} A URL begins with one of "
        f"{', '.join(schemes)}, as in embedded:./directory or qdrant://host:6333/collection"
    )


def _engine_at(url: str) -> str:
    """Return the store URL of a web address, by the engines' usual ports; empty if it has none."""
    try:
        parts = urlsplit(url)
        engine = _PORTS.get(parts.port or 0)
    except ValueError:  # no port is named so
        return ""
    secure = "s" * (parts.scheme == "https")
    return f"{engine}{secure}://{parts.hostname}:{parts.port}/NAME" if engine else ""


_EMBEDDED: Final = "embedded"
_WEB: Final = ("http", "https")
_PORTS: Final = {6333: "qdrant", 9200: "elasticsearch", 19530: "milvus"}


def _missing(url: str) -> ConfigurationError:
    """Return the error for a store that must exist and does not."""
    if ":memory:" in url:
        return ConfigurationError(
            f"{url} is in memory: each time it is opened it is another, empty store; open it once "
            f"with open_store({url!r}), add nodes, and pass that store"
        )
    return ConfigurationError(
        f"there is no store at {url}, and reading does not create one; check the URL, or fill the "
        f"store first: open_store({url!r}).add(nodes), or llama-retrieval ingest PATH --kb {url}"
    )


def _check_host(scheme: str, place: str) -> None:
    """Raise if a folder follows ``//``, because it would be parsed as a host."""
    folder = place.removeprefix("//")
    is_folder = scheme == _EMBEDDED or folder.startswith((".", "/", "~"))
    if folder != place and is_folder and scheme in (_EMBEDDED, *ENGINES):
        raise ConfigurationError(
            f"'{scheme}:{place}' names a folder as if it were a host; write {scheme}:{folder}"
        )


def _import(engine: str, module: str) -> ModuleType:
    """Import a module of an engine."""
    return optional_module(
        f"llama_retrieval_ext.stores.{engine}.{module}", engine.capitalize(), engine
    )


def check_url(url: str) -> None:
    """Raise unless `url` is a string without NUL characters."""
    if not isinstance(url, str) or "\0" in url:
        raise ConfigurationError(f"a store is named by a URL, got {url!r}; write 'embedded:./kb'")


def source_of(storage: Storage) -> StoreSource:
    """Return the backend of a store, with what its index has; a URL must exist."""
    if isinstance(storage, StoreSource):
        return storage
    if isinstance(storage, VectorStoreIndex | StorageContext):
        return _with_docstore(storage)
    if isinstance(storage, str):
        storage = open_store(storage, must_exist=True)
    if isinstance(storage, BasePydanticVectorStore):
        return StoreSource(backend_for(storage))
    # A mock has any attribute, and so the methods of a backend.
    if isinstance(storage, Backend) and isinstance(storage.features, EngineFeatures):
        return StoreSource(storage)
    raise ConfigurationError(
        f"expected a URL, a LlamaIndex vector store, VectorStoreIndex or StorageContext, got "
        f"{storage!r}; "
        "a KnowledgeBase makes its retrievers itself: kb.retriever('hybrid')"
    )


def backend_for(store: BasePydanticVectorStore, *, lookup: Lookup | None = None) -> Backend:
    """Return the backend of a store: itself, its engine's, or the generic one."""
    if isinstance(store, EngineStore):
        return store
    engine = _engine_of_llama_index(type(store))
    layout = None if engine is None else _import(engine, "llama_index_store")
    backend: Backend | None = None if layout is None else layout.backend_of(store)
    return backend or GenericBackend(store, lookup=None if store.stores_text else lookup)


def _engine_of_llama_index(kind: type[BasePydanticVectorStore]) -> str | None:
    """Return the engine of a class of LlamaIndex's stores, or of one derived from it."""
    for home in (cls.__module__ for cls in kind.__mro__):
        for engine in ENGINES.values():
            if home.startswith(f"llama_index.vector_stores.{engine}"):
                return engine
    return None


def _with_docstore(storage: VectorStoreIndex | StorageContext) -> StoreSource:
    docstore, store = storage.docstore, storage.vector_store
    index = storage if isinstance(storage, VectorStoreIndex) else None

    def lookup(ids: Sequence[str]) -> Mapping[str, BaseNode]:
        names = {} if index is None else index.index_struct.nodes_dict
        node_ids = [names.get(id_, id_) for id_ in ids]
        nodes = {node.node_id: node for node in docstore.get_nodes(node_ids, raise_error=False)}
        pairs = zip(ids, node_ids, strict=True)
        return {id_: nodes[node_id] for id_, node_id in pairs if node_id in nodes}

    def has(node_id: str) -> bool:
        """Return whether the store has a node, as far as LlamaIndex knows."""
        if isinstance(store, SimpleVectorStore):
            return node_id in store.data.embedding_dict
        return index is None or node_id in index.index_struct.nodes_dict

    backend, texts = backend_for(store, lookup=lookup), StoredTexts(docstore, has)
    if index is None:
        return StoreSource(backend, texts=texts)
    # LlamaIndex has no public access to these two.
    return StoreSource(backend, index._embed_model, index._object_map, texts)  # noqa: SLF001
