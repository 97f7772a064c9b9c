"""Rewrites and fan-outs of queries."""
