"""Retrieval for LlamaIndex: hybrid search, composition, isolation, explanation.

`__all__` lists the most common names. All other names are in sub-packages, such as
`llama_retrieval_ext.stages`, and can also be imported from here. Each name is loaded on first use,
so importing the package is fast.
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
    from llama_retrieval_ext.knowledge_base import *
    from llama_retrieval_ext.pipeline import *
    from llama_retrieval_ext.pipeline.branches import branches
    from llama_retrieval_ext.query import Query, Scope
    from llama_retrieval_ext.results import Contribution, Hit, SearchResult
    from llama_retrieval_ext.retrievers import *
    from llama_retrieval_ext.serve import *
    from llama_retrieval_ext.services import *
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

# Hidden from type checkers: `__getattr__` would make them accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.pipeline.branches": ("branches",),
        "llama_retrieval_ext.query": ("Query", "Scope"),
        "llama_retrieval_ext.results": ("Contribution", "Hit", "SearchResult"),
    }
    _PACKAGES = (
        "llama_retrieval_ext.errors",
        "llama_retrieval_ext.knowledge_base",
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
        "llama_retrieval_ext.services",
    )
    __getattr__, __dir__ = lazy_names(__name__, _MODULES, more=_PACKAGES)
