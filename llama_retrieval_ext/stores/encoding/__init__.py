"""Conversion of nodes, vectors and values to the form that engines store."""
