"""Embedding models: one that needs no network, and those that a word names."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.embeddings.local import LocalEmbedding
    from llama_retrieval_ext.embeddings.resolve import resolve_embed_model


__all__ = ["LocalEmbedding", "resolve_embed_model"]

# A type checker that saw these would take any misspelled name for one of ours.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.embeddings.local": ("LocalEmbedding",),
        "llama_retrieval_ext.embeddings.resolve": ("resolve_embed_model",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
