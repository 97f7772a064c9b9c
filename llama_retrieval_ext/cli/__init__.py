"""The command line, `llama-retrieval`: quickstart, ingest, search and more."""

from llama_retrieval_ext.cli.app import main

__all__ = ["main"]
