"""Which documents a knowledge base has, and what is being written: in a file or on a server."""
