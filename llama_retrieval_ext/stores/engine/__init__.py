"""Base classes for all engines."""
