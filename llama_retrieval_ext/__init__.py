"""Retrieval for LlamaIndex: hybrid search, composition, isolation, explanation.

The public names are loaded on first use, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from llama_retrieval_ext.errors import (
    CompositionError,
    ConfigurationError,
    MissingDependencyError,
    RetrievalExtError,
    ScopeError,
    StoreError,
)

if TYPE_CHECKING:
    from llama_retrieval_ext.basic.bm25 import BM25Retriever
    from llama_retrieval_ext.basic.hybrid import HybridRetriever
    from llama_retrieval_ext.basic.keyword import KeywordRetriever
    from llama_retrieval_ext.basic.vector import VectorRetriever
    from llama_retrieval_ext.embeddings.local import LocalEmbedding
    from llama_retrieval_ext.embeddings.resolve import resolve_embed_model
    from llama_retrieval_ext.execution.legs import Leg
    from llama_retrieval_ext.ingest.knowledge_base import KnowledgeBase
    from llama_retrieval_ext.query import Query, Scope
    from llama_retrieval_ext.ranking import Contribution, Hit, SearchResult
    from llama_retrieval_ext.stages.normalisation import Normalisation
    from llama_retrieval_ext.stages.retriever import Retriever
    from llama_retrieval_ext.stages.rrf import RRF
    from llama_retrieval_ext.stages.weighted_sum import WeightedSum
    from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
    from llama_retrieval_ext.stores.generic import GenericBackend
    from llama_retrieval_ext.stores.opening import open_store
    from llama_retrieval_ext.text.tokenizer import Tokenizer

__version__ = "0.1.0"

__all__ = [
    "RRF",
    "BM25Retriever",
    "CompositionError",
    "ConfigurationError",
    "Contribution",
    "EmbeddedVectorStore",
    "GenericBackend",
    "Hit",
    "HybridRetriever",
    "KeywordRetriever",
    "KnowledgeBase",
    "Leg",
    "LocalEmbedding",
    "MissingDependencyError",
    "Normalisation",
    "Query",
    "RetrievalExtError",
    "Retriever",
    "Scope",
    "ScopeError",
    "SearchResult",
    "StoreError",
    "Tokenizer",
    "VectorRetriever",
    "WeightedSum",
    "open_store",
    "resolve_embed_model",
]

_MODULES = {
    "RRF": "stages.rrf",
    "BM25Retriever": "basic.bm25",
    "Contribution": "ranking",
    "EmbeddedVectorStore": "stores.embedded.store",
    "GenericBackend": "stores.generic",
    "Hit": "ranking",
    "HybridRetriever": "basic.hybrid",
    "KeywordRetriever": "basic.keyword",
    "KnowledgeBase": "ingest.knowledge_base",
    "Leg": "execution.legs",
    "LocalEmbedding": "embeddings.local",
    "Normalisation": "stages.normalisation",
    "Query": "query",
    "Retriever": "stages.retriever",
    "Scope": "query",
    "SearchResult": "ranking",
    "Tokenizer": "text.tokenizer",
    "VectorRetriever": "basic.vector",
    "WeightedSum": "stages.weighted_sum",
    "open_store": "stores.opening",
    "resolve_embed_model": "embeddings.resolve",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
