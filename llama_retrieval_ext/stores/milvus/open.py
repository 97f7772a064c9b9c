"""Opens Milvus stores; imported on first use, because pymilvus is an extra."""

from collections.abc import Mapping
from typing import Any

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import MissingDependencyError
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.stores.engine.config import params_of
from llama_retrieval_ext.stores.milvus.schema import MilvusParams
from llama_retrieval_ext.stores.milvus.url import parse_address
from llama_retrieval_ext.text.tokenizer import Tokenizer

try:
    from llama_retrieval_ext.stores.milvus.store import MilvusBackend, MilvusStore
except ModuleNotFoundError as error:
    if (error.name or "").startswith("llama_retrieval_ext"):
        raise
    raise MissingDependencyError("Milvus", "milvus") from error


def open_milvus(
    url: str,
    *,
    tokenizer: Tokenizer | None = None,
    dim: int | None = None,
    distance: Distance | None = None,
    store_params: Mapping[str, Any] | None = None,
) -> MilvusStore:
    """Open the store that a URL names."""
    return MilvusStore(
        parse_address(url),
        tokenizer=tokenizer,
        dim=dim,
        distance=distance,
        params=params_of(MilvusParams, store_params or {}, engine="Milvus"),
    )


def is_new(url: str) -> bool:
    """Return whether opening the URL would create files; always False for a server."""
    path = parse_address(url).path
    return path is not None and not path.exists()


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend for a store in Milvus, ours or LlamaIndex's; None for any other."""
    if type(store).__module__.startswith("llama_index."):
        # The import is slow; the owner of such a store has made it already.
        from llama_retrieval_ext.stores.milvus.llama_index_store import (  # noqa: PLC0415
            LlamaIndexMilvusBackend,
        )

        return LlamaIndexMilvusBackend(store)  # type: ignore[arg-type]  # of that package there is only one
    return MilvusBackend(store) if isinstance(store, MilvusStore) else None
