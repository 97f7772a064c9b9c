"""The embedded engine: a LlamaIndex vector store over Qdrant Edge, and its backend."""
