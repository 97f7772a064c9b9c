"""`EmbeddedPropertyGraphStore` of llama-retrieval-ext, among the graph stores of LlamaIndex."""

from llama_retrieval_ext import EmbeddedPropertyGraphStore

__all__ = ["EmbeddedPropertyGraphStore"]
