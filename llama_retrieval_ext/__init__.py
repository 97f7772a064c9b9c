"""Retrieval for LlamaIndex."""
