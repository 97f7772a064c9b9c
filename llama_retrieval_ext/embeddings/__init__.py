"""Embedding models: one that needs no network, and the notation that names any other."""
