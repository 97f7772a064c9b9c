"""Refining stages: cut, thin out, reorder."""
