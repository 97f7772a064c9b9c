"""Qdrant: stores opened by URL; backends for these and for LlamaIndex's `QdrantVectorStore`."""
