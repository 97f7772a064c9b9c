"""Selectors and the router."""
