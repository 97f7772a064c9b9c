"""Nodes, vectors and values as engines store them."""
