"""Prompts within a token budget, and what a model answers, parsed and in time."""
