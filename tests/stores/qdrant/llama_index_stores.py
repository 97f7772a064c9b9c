"""LlamaIndex's `QdrantVectorStore`, as users set it up, and its nodes by their sample names."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from llama_retrieval_ext.stores.engine.backend import Candidate
from llama_retrieval_ext.stores.qdrant.llama_index_store import LlamaIndexQdrantBackend
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer()
# LlamaIndex hands ids on as they are, and Qdrant takes only UUIDs: some in the order of the names.
UUIDS = {
    name: str(UUID(int=number))
    for number, name in enumerate(sorted(node.node_id for node in sample_nodes()))
}
NAMES = {uuid: name for name, uuid in UUIDS.items()}


def encoded(texts: Sequence[str]) -> tuple[list[list[int]], list[list[float]]]:
    counted = [TOKENIZER.term_counts(text) for text in texts]
    return [list(each) for each in counted], [[float(n) for n in each.values()] for each in counted]


def llama_index_store(
    client: QdrantClient | None = None,
    aclient: AsyncQdrantClient | None = None,
    *,
    hybrid: bool = False,
    **settings: Any,
) -> QdrantVectorStore:
    settings.setdefault("index_doc_id", False)  # local mode warns that indexes have no effect
    if hybrid:
        settings |= {"enable_hybrid": True, "sparse_doc_fn": encoded, "sparse_query_fn": encoded}
        settings["sparse_config"] = models.SparseVectorParams(modifier=models.Modifier.IDF)
    return QdrantVectorStore("c", client=client, aclient=aclient, **settings)


def nodes_with_uuids(model: BaseEmbedding) -> list[BaseNode]:
    nodes = sample_nodes(model)
    for node in nodes:
        node.id_ = UUIDS[node.id_]
    return list(nodes)


def named(backend: LlamaIndexQdrantBackend) -> LlamaIndexQdrantBackend:
    """The backend over `nodes_with_uuids`, which now finds `sample_nodes`."""
    candidate = backend.candidate

    def named_candidate(hit: models.ScoredPoint, score: float) -> Candidate:
        node = candidate(hit, score).node
        return Candidate(node.model_copy(update={"id_": NAMES[node.node_id]}), score)

    backend.candidate = named_candidate  # type: ignore[method-assign]
    return backend
