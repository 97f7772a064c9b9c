"""Elasticsearch: our own LlamaIndex vector store over its clients, and its backend."""
