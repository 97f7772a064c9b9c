"""Calls to language models and parsing of their answers."""
