"""Stages that rewrite a query."""
