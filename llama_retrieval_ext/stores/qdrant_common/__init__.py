"""Payload, filters and fusions shared by Qdrant and the embedded engine."""
