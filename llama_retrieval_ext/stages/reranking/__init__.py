"""Rerankers and what they score by."""
