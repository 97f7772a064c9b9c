"""Knowledge bases: documents in, retrievers out."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.knowledge_base.browsing import KnowledgeBaseInfo
    from llama_retrieval_ext.knowledge_base.copy import copy_knowledge_base
    from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
    from llama_retrieval_ext.knowledge_base.ray.ingest import ingest_with_ray
    from llama_retrieval_ext.knowledge_base.readers.files import read_documents
    from llama_retrieval_ext.knowledge_base.report import CopyReport

__all__ = [
    "CopyReport",
    "KnowledgeBase",
    "KnowledgeBaseInfo",
    "copy_knowledge_base",
    "ingest_with_ray",
    "read_documents",
]

# Hidden from type checkers, which would otherwise accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.knowledge_base.copy": ("copy_knowledge_base",),
        "llama_retrieval_ext.knowledge_base.browsing": ("KnowledgeBaseInfo",),
        "llama_retrieval_ext.knowledge_base.knowledge_base": ("KnowledgeBase",),
        "llama_retrieval_ext.knowledge_base.ray.ingest": ("ingest_with_ray",),
        "llama_retrieval_ext.knowledge_base.readers.files": ("read_documents",),
        "llama_retrieval_ext.knowledge_base.report": ("CopyReport",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
