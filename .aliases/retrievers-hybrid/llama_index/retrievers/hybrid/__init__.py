"""`HybridRetriever` of llama-retrieval-ext, among the retrievers of LlamaIndex."""

from llama_retrieval_ext import HybridRetriever

__all__ = ["HybridRetriever"]
