"""Payload, filters and fusions that Qdrant and the embedded engine share."""
