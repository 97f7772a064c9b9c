"""The graph beside the store of a knowledge base."""
