"""Qdrant: stores opened by URL, and backends for them and for LlamaIndex's `QdrantVectorStore`."""
