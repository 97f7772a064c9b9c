"""Vector stores by URL: embedded, Qdrant, Milvus, Elasticsearch, and any LlamaIndex store."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
    from llama_retrieval_ext.stores.generic import GenericBackend
    from llama_retrieval_ext.stores.open import open_store


__all__ = ["EmbeddedVectorStore", "GenericBackend", "open_store"]

# Hidden from type checkers, which would otherwise accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.stores.embedded.store": ("EmbeddedVectorStore",),
        "llama_retrieval_ext.stores.generic": ("GenericBackend",),
        "llama_retrieval_ext.stores.open": ("open_store",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
