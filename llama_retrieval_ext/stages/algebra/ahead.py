"""Asks a child retriever ahead, where it is one that can be."""

from collections.abc import Sequence

from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.algebra.retriever import Retriever


def ahead(retriever: BaseRetriever, queries: Sequence[Query]) -> Plan[None]:
    """The plan for what a child is sure to need for several queries; nothing for a foreign one.

    Args:
        retriever: The child.
        queries: As it will be asked.
    """
    if isinstance(retriever, Retriever) and queries:
        yield from retriever.ahead(queries)
