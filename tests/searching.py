"""Searches in one of their two ways."""

from collections.abc import Callable
from typing import TypeAlias

from llama_index.core.schema import QueryBundle

from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.results import SearchResult

# What the fixture ``searched`` gives.
Searched: TypeAlias = Callable[[Retriever, str | QueryBundle], SearchResult]
