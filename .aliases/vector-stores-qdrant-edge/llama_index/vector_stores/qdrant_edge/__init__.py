"""`EmbeddedVectorStore` of llama-retrieval-ext, among the vector stores of LlamaIndex."""

from llama_retrieval_ext import EmbeddedVectorStore

__all__ = ["EmbeddedVectorStore"]
