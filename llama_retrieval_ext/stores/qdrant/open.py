"""Opens Qdrant stores; imported only when one is opened."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import MissingDependencyError
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.text.tokenizer import Tokenizer

try:
    from llama_index.vector_stores.qdrant import QdrantVectorStore

    from llama_retrieval_ext.stores.qdrant.llama_index_store import LlamaIndexQdrantBackend
    from llama_retrieval_ext.stores.qdrant.store import QdrantBackend, QdrantStore
    from llama_retrieval_ext.stores.qdrant.url import parse_address
except ModuleNotFoundError as error:
    if (error.name or "").startswith("llama_retrieval_ext"):
        raise
    raise MissingDependencyError("Qdrant", "qdrant") from error

# The client's local mode writes it into each of its directories.
_FILE: Final = "meta.json"


def open_qdrant(
    url: str,
    *,
    tokenizer: Tokenizer | None = None,
    dim: int | None = None,
    distance: Distance | None = None,
    store_params: Mapping[str, object] | None = None,
) -> QdrantStore:
    """Open the store at a URL of Qdrant; see `QdrantStore`."""
    return QdrantStore(
        url, tokenizer=tokenizer, dim=dim, distance=distance, store_params=store_params
    )


def is_new(url: str) -> bool:
    """Return whether opening the URL would create files; a server is not contacted."""
    path = parse_address(url).path
    return path is not None and not (Path(path).expanduser() / _FILE).is_file()


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend of this package's or LlamaIndex's Qdrant store; None for others."""
    if isinstance(store, QdrantStore):
        return QdrantBackend(store)
    return LlamaIndexQdrantBackend(store) if isinstance(store, QdrantVectorStore) else None
