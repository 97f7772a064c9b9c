"""Stages that reorder a ranking."""
