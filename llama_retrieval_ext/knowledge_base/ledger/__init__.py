"""List of the documents of a knowledge base and of unfinished writes, in a file or on a server."""
