"""Retrievers: over stores, in memory, over graphs, and composed of others."""
