"""Retrievers: of graphs, so far."""
