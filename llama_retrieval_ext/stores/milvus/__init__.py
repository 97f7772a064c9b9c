"""Milvus: our own LlamaIndex vector store over pymilvus, and the backends."""
