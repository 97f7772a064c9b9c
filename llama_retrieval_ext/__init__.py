"""Retrieval for LlamaIndex: hybrid search, composition, isolation, explanation.

The names that most programs need are here. All others are in the package that has them, such as
`llama_retrieval_ext.stages`, and can be imported from here as well. Each is loaded on first use, so
that importing the package costs next to nothing.
"""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.capabilities import *
    from llama_retrieval_ext.config import *
    from llama_retrieval_ext.embeddings import *
    from llama_retrieval_ext.errors import *
    from llama_retrieval_ext.evaluation import *
    from llama_retrieval_ext.execution import *
    from llama_retrieval_ext.graph import *
    from llama_retrieval_ext.ingest import *
    from llama_retrieval_ext.pipeline import *
    from llama_retrieval_ext.pipeline.branches import branches
    from llama_retrieval_ext.query import Query, Scope
    from llama_retrieval_ext.results import Contribution, Hit, SearchResult
    from llama_retrieval_ext.retrievers import *
    from llama_retrieval_ext.serve import *
    from llama_retrieval_ext.stages import *
    from llama_retrieval_ext.stores import *
    from llama_retrieval_ext.text import *

__version__ = "0.1.0"

__all__ = [
    "MMR",
    "RRF",
    "BM25Retriever",
    "Collapse",
    "Contribution",
    "Hit",
    "HybridRetriever",
    "KeywordRetriever",
    "KnowledgeBase",
    "LocalEmbedding",
    "Query",
    "Refine",
    "RetrievalExtError",
    "Retriever",
    "Rewrite",
    "Route",
    "RouteRule",
    "RouterRetriever",
    "RuleRerank",
    "RuleSelector",
    "Scope",
    "SearchResult",
    "Top",
    "VectorRetriever",
    "WeightedSum",
    "branches",
    "open_store",
    "read_documents",
]

# A type checker that saw these would take any misspelled name for one of ours.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.pipeline.branches": ("branches",),
        "llama_retrieval_ext.query": ("Query", "Scope"),
        "llama_retrieval_ext.results": ("Contribution", "Hit", "SearchResult"),
    }
    _PACKAGES = (
        "llama_retrieval_ext.errors",
        "llama_retrieval_ext.ingest",
        "llama_retrieval_ext.retrievers",
        "llama_retrieval_ext.stages",
        "llama_retrieval_ext.pipeline",
        "llama_retrieval_ext.execution",
        "llama_retrieval_ext.evaluation",
        "llama_retrieval_ext.stores",
        "llama_retrieval_ext.graph",
        "llama_retrieval_ext.embeddings",
        "llama_retrieval_ext.text",
        "llama_retrieval_ext.capabilities",
        "llama_retrieval_ext.config",
        "llama_retrieval_ext.serve",
    )
    __getattr__, __dir__ = lazy_names(__name__, _MODULES, more=_PACKAGES)
