"""The embedded engine: our own LlamaIndex vector store over Qdrant Edge, and its backend."""
