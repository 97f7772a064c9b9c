"""Elasticsearch: a LlamaIndex vector store over its clients, and the backend."""
