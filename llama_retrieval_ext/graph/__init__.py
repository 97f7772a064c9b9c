"""Graphs: backends, expansion by hops, entity linking and rules."""
