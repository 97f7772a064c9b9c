"""Searches in one of their two ways."""

from collections.abc import Callable
from typing import TypeAlias

from llama_index.core.schema import QueryBundle

from llama_retrieval_ext import Retriever, SearchResult

# What the fixture ``searched`` gives.
Searched: TypeAlias = Callable[[Retriever, str | QueryBundle], SearchResult]
