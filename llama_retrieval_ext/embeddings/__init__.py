"""Embedding models: a local one without network access, and models given by name."""

from llama_retrieval_ext.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
