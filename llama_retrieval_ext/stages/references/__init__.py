"""Index nodes and what they stand for."""
