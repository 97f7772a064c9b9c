"""Fusions: rankings to one ranking."""
