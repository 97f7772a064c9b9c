"""Opens a store by URL, and finds the backend for whatever a user has."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.indices.vector_store.base import VectorStoreIndex
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.backend import Backend
from llama_retrieval_ext.stores.embedded.backend import EmbeddedBackend
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.generic import GenericBackend, Lookup

Storage: TypeAlias = str | BasePydanticVectorStore | VectorStoreIndex | Backend


@dataclass(frozen=True, slots=True)
class Source:
    """What a retriever over one store works with.

    Attributes:
        backend: How the store is asked.
        embed_model: The embedding model that came with it, as with a ``VectorStoreIndex``.
        objects: What index nodes stand for, by ``index_id``.
    """

    backend: Backend
    embed_model: BaseEmbedding | None = None
    objects: Mapping[str, object] = field(default_factory=dict)


def open_store(url: str) -> BasePydanticVectorStore:
    """The store that a URL names, opened or created.

    Args:
        url: ``embedded:DIRECTORY``, or ``embedded::memory:`` for one that is gone when closed.

    Raises:
        ConfigurationError: The URL names no engine.
        StoreFormatError: The directory holds something else.
        StoreUnavailableError: The engine cannot be reached, or another process has the directory.

    Examples:
        >>> with open_store("embedded::memory:") as store:
        ...     store.count()
        0

    """
    engine, _, place = url.partition(":")
    if engine in _ENGINES and place:
        return _ENGINES[engine](place)
    near = difflib.get_close_matches(engine, _ENGINES, n=1)
    advice = f"; did you mean {near[0]}:...?" if near else ""
    raise ConfigurationError(
        f"{url!r} names no store{advice} Write embedded:./directory or embedded::memory:"
    )


_ENGINES: Mapping[str, Callable[[str], BasePydanticVectorStore]] = {"embedded": EmbeddedVectorStore}


def source_of(storage: Storage) -> Source:
    """The backend for what a user has, and the embedding model if it brings one.

    Args:
        storage: A URL, a LlamaIndex vector store, a ``VectorStoreIndex``, or a backend.

    Raises:
        ConfigurationError: It is none of these.
    """
    if isinstance(storage, str):
        return Source(backend_for(open_store(storage)))
    if isinstance(storage, VectorStoreIndex):
        backend = backend_for(storage.vector_store, lookup=_node_lookup(storage))
        # LlamaIndex has no public way to ask an index for these two.
        return Source(backend, storage._embed_model, storage._object_map)  # noqa: SLF001
    if isinstance(storage, BasePydanticVectorStore):
        return Source(backend_for(storage))
    if isinstance(storage, Backend):
        return Source(storage)
    raise ConfigurationError(
        f"expected a URL, a LlamaIndex vector store or a VectorStoreIndex, got {storage!r}"
    )


def backend_for(store: BasePydanticVectorStore, *, lookup: Lookup | None = None) -> Backend:
    """The backend of a store: its engine's own, or the generic one."""
    if isinstance(store, EmbeddedVectorStore):
        return EmbeddedBackend(store)
    return GenericBackend(store, lookup=None if store.stores_text else lookup)


def _node_lookup(index: VectorStoreIndex) -> Lookup:
    def lookup(ids: Sequence[str]) -> dict[str, BaseNode]:
        names = index.index_struct.nodes_dict
        own_ids = {id_: names.get(id_, id_) for id_ in ids}
        nodes = index.docstore.get_nodes(list(own_ids.values()), raise_error=False)
        known = {node.node_id: node for node in nodes}
        return {id_: known[own_id] for id_, own_id in own_ids.items() if own_id in known}

    return lookup
