"""Retrievers over one source."""
