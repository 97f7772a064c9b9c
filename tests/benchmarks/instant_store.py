"""A store that answers at once, to see what a retriever itself costs."""

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from pydantic import PrivateAttr

TEXT = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod. " * 7


def make_nodes(n: int) -> list[TextNode]:
    """Nodes of 500 characters with a little metadata and a source document."""
    return [
        TextNode(
            id_=f"n{i}",
            text=TEXT[:500],
            metadata={"group": i % 10, "title": f"Document {i // 10}"},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"d{i // 10}")},
        )
        for i in range(n)
    ]


class InstantStore(BasePydanticVectorStore):
    """Always the same nodes, ready made."""

    stores_text: bool = True
    _nodes: list[TextNode] = PrivateAttr()

    def __init__(self) -> None:
        super().__init__(stores_text=True)
        self._nodes = make_nodes(200)

    @property
    def client(self) -> Any:
        return None

    def add(self, nodes: Any, **kwargs: Any) -> list[str]:
        raise NotImplementedError

    def delete(self, ref_doc_id: str, **kwargs: Any) -> None:
        raise NotImplementedError

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        nodes = self._nodes[: query.similarity_top_k]
        scores = [1.0 - i / 1000 for i in range(len(nodes))]
        return VectorStoreQueryResult(nodes, scores, [node.node_id for node in nodes])


class InstantEmbedding(BaseEmbedding):
    """Always the same vector."""

    def _get_query_embedding(self, query: str) -> list[float]:
        return [0.1] * 384

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return [0.1] * 384

    def _get_text_embedding(self, text: str) -> list[float]:
        return [0.1] * 384
