"""Searches in either of their two ways."""

from collections.abc import Callable
from typing import TypeAlias

from llama_index.core.schema import QueryBundle

from llama_retrieval_ext.ranking import SearchResult
from llama_retrieval_ext.stages.algebra.retriever import Retriever

# What the fixture ``searched`` gives.
Searched: TypeAlias = Callable[[Retriever, str | QueryBundle], SearchResult]
