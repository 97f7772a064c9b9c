"""BM25 over nodes in memory or in a docstore."""

from llama_retrieval_ext.retrievers.bm25.retriever import BM25Retriever

__all__ = ["BM25Retriever"]
