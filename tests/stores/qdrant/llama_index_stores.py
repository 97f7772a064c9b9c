"""LlamaIndex's `QdrantVectorStore`, as users set it up, and its nodes by their sample names."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.stores.engine.backend import Candidate, HybridRankings, Search
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
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


class Named:
    """A backend over `nodes_with_uuids` that finds `sample_nodes`."""

    def __init__(self, backend: LlamaIndexQdrantBackend) -> None:
        self._backend = backend
        self.store = backend.store
        self.engine = backend.engine
        self.drop_violations = backend.drop_violations
        self.features = backend.features

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        return _mapped(self._backend.dense(embedding, search), _named)

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        return _mapped(self._backend.keyword(text, search), _named)

    def hybrid(
        self, embedding: Sequence[float], text: str, search: Search, *, nodes_last: bool
    ) -> Call[HybridRankings]:
        both = self._backend.hybrid(embedding, text, search, nodes_last=nodes_last)
        return _mapped(both, _named_rankings)

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        return _mapped(self._backend.fused(embedding, text, search, how), _named)

    def describe(self) -> Mapping[str, object]:
        return self._backend.describe()


def _named(found: list[Candidate]) -> list[Candidate]:
    return [
        Candidate(each.node.model_copy(update={"id_": NAMES[each.node_id]}), each.score)
        for each in found
    ]


def _named_rankings(found: HybridRankings) -> HybridRankings:
    vector, keyword = (
        [found.found[id_].rescored(score) for id_, score in ranking]
        for ranking in (found.vector, found.keyword)
    )
    return HybridRankings.of(_named(vector), _named(keyword))


def _mapped(call: Call[Any], change: Any) -> Call[Any]:
    asynchronous = call.coroutine
    if asynchronous is None:
        return Call(lambda: change(call.function()))

    async def coroutine() -> Any:
        return change(await asynchronous())

    return Call(lambda: change(call.function()), coroutine)
