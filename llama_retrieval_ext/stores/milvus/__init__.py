"""Milvus: a LlamaIndex vector store over pymilvus, and the backends."""
