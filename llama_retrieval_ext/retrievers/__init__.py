"""Retrievers: over stores, in memory, and composed of others."""
