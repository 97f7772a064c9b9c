"""Retrievers over retrievers, under the names that users know."""
