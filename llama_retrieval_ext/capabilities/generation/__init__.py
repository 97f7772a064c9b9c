"""Calls of a language model: prompts within a token budget, parsed answers, deadlines."""
