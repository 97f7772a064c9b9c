"""Embedding models: a local one without network access, and models given by name."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.embeddings.local import LocalEmbedding
    from llama_retrieval_ext.embeddings.resolve import resolve_embed_model


__all__ = ["LocalEmbedding", "resolve_embed_model"]

# Hidden from type checkers, which would otherwise accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.embeddings.local": ("LocalEmbedding",),
        "llama_retrieval_ext.embeddings.resolve": ("resolve_embed_model",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
