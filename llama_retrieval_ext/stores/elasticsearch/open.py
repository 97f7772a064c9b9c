"""Opens Elasticsearch stores; imported on first use, because the client is an extra."""

from collections.abc import Mapping
from typing import Any, Final

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.stores.elasticsearch.client import ClientConfig
from llama_retrieval_ext.stores.elasticsearch.schema import IndexParams
from llama_retrieval_ext.stores.elasticsearch.store import (
    ElasticsearchBackend,
    ElasticsearchVectorStore,
)
from llama_retrieval_ext.stores.elasticsearch.url import parse_address
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.stores.engine.config import params_of
from llama_retrieval_ext.text.tokenizer import Tokenizer

_LLAMA_INDEX: Final = "llama_index.vector_stores.elasticsearch"


def open_elasticsearch(
    url: str,
    *,
    tokenizer: Tokenizer | None = None,
    dim: int | None = None,
    distance: Distance | None = None,
    store_params: Mapping[str, Any] | None = None,
) -> ElasticsearchVectorStore:
    """Open the store that a URL names."""
    address = parse_address(url)
    return ElasticsearchVectorStore(
        address.index,
        connection=ClientConfig.of_address(address),
        tokenizer=tokenizer,
        dim=dim,
        distance=distance,
        params=params_of(IndexParams, store_params or {}, engine="Elasticsearch"),
    )


def is_new(url: str) -> bool:  # noqa: ARG001 - the engines' common signature
    """Return False: opening never creates an index."""
    return False


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend for a store in Elasticsearch, ours or LlamaIndex's; None for any other."""
    if isinstance(store, ElasticsearchVectorStore):
        return ElasticsearchBackend(store)
    if type(store).__module__.startswith(_LLAMA_INDEX):
        # The import is slow; the owner of such a store has made it already.
        from llama_retrieval_ext.stores.elasticsearch.llama_index_store import (  # noqa: PLC0415
            backend_of_llama_index,
        )

        return backend_of_llama_index(store)
    return None
