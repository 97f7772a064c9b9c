"""Retrievers whose hits refer to something else."""

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_retrieval_ext.testing.fakes import FakeRetriever


def finding(*nodes: BaseNode, score: float = 0.9) -> FakeRetriever:
    """A retriever that finds these nodes, whatever the query."""
    retriever = FakeRetriever()
    retriever.hits = [NodeWithScore(node=node, score=score) for node in nodes]
    return retriever
