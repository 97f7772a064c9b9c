"""Embeddings of hits: those the nodes carry, those in a store, and those made of their text."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.ranking import Hit
from llama_retrieval_ext.stages.refining.cosine import Vector

# Node ids to their embeddings; ids that are not known are left out.
EmbeddingLookup: TypeAlias = Callable[[Sequence[str]], Mapping[str, Vector]]
EmbeddingSource: TypeAlias = BasePydanticVectorStore | EmbeddingLookup


def stored_embeddings(
    hits: Sequence[Hit], source: EmbeddingSource | None
) -> Plan[dict[str, Vector]]:
    """The plan for the embeddings that exist: of the nodes, and where they have none, of the store.

    Args:
        hits: Whose embeddings.
        source: A store or a function; None where there is none.

    Returns:
        By node id; what nobody knows is left out.

    Raises:
        ConfigurationError: The store cannot give nodes by id.
    """
    carried = {hit.node.node_id: hit.node.embedding for hit in hits}
    known: dict[str, Vector] = {
        node_id: vector for node_id, vector in carried.items() if vector is not None
    }
    # Never with no ids at all: to some stores that means every node there is.
    missing = [node_id for node_id in carried if node_id not in known]
    if source is not None and missing:
        looked_up: Mapping[str, Vector] = yield _lookup(source, missing)
        known.update(looked_up)
    return known


def text_embeddings(hits: Sequence[Hit], model: BaseEmbedding) -> Plan[dict[str, Vector]]:
    """The plan for the embeddings of the texts of hits, in one batch; by node id."""
    texts = [hit.node.get_content(metadata_mode=MetadataMode.EMBED) for hit in hits]
    # BaseEmbedding's own async way embeds on the loop.
    is_async = (
        type(model)._aget_text_embedding is not BaseEmbedding._aget_text_embedding  # noqa: SLF001
        or type(model)._aget_text_embeddings is not BaseEmbedding._aget_text_embeddings  # noqa: SLF001
    )
    vectors: list[list[float]] = yield Call(
        lambda: model.get_text_embedding_batch(texts),
        (lambda: model.aget_text_embedding_batch(texts)) if is_async else None,
    )
    return {hit.node.node_id: vector for hit, vector in zip(hits, vectors, strict=True)}


def _lookup(source: EmbeddingSource, ids: list[str]) -> Call[Mapping[str, Vector]]:
    if not isinstance(source, BasePydanticVectorStore):
        return Call(lambda: source(ids))
    store = source
    if isinstance(store, SimpleVectorStore):  # keeps no nodes, only their embeddings
        kept = store.data.embedding_dict
        return Call(lambda: {node_id: kept[node_id] for node_id in ids if node_id in kept})

    def ask() -> Mapping[str, Vector]:
        try:
            return _embeddings(store.get_nodes(node_ids=ids))
        except NotImplementedError as error:
            raise _no_nodes(store) from error

    async def ask_async() -> Mapping[str, Vector]:
        try:
            return _embeddings(await store.aget_nodes(node_ids=ids))
        except NotImplementedError as error:
            raise _no_nodes(store) from error

    is_async = type(store).aget_nodes is not BasePydanticVectorStore.aget_nodes
    return Call(ask, ask_async if is_async else None)


def _embeddings(nodes: Sequence[BaseNode]) -> Mapping[str, Vector]:
    return {node.node_id: node.embedding for node in nodes if node.embedding is not None}


def _no_nodes(store: BasePydanticVectorStore) -> ConfigurationError:
    return ConfigurationError(
        f"{type(store).__name__} cannot give nodes by their ids; pass store= a function from node "
        "ids to embeddings, or embed_model= to embed their text"
    )
