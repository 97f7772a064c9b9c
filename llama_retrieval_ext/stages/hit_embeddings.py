"""Embeddings of hits that their nodes do not carry, from stores or a model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import awaits
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.retrieval import checked_embedding
from llama_retrieval_ext.formulas.cosine import Vector
from llama_retrieval_ext.results import Hit, Origin, origin_of

# Maps node ids to embeddings; unknown ids are left out.
EmbeddingLookup: TypeAlias = Callable[[Sequence[str]], Mapping[str, Vector]]
EmbeddingSource: TypeAlias = BasePydanticVectorStore | EmbeddingLookup


def stored_embeddings(
    hits: Sequence[Hit], source: EmbeddingSource | None, model: BaseEmbedding | None = None
) -> Plan[dict[str, Vector]]:
    """Return the plan for the embeddings that stores have."""
    if not hits:  # for some stores, no ids mean all nodes
        return {}
    if source is None:
        return (yield from origin_embeddings(hits, model))
    ids = [hit.node.node_id for hit in hits]
    if not isinstance(source, BasePydanticVectorStore):
        vectors: Mapping[str, Vector] = yield Call(lambda: source(ids))
        return {**vectors}
    stored = yield from _stored(Origin(source), ids)
    if stored is None:
        raise ConfigurationError(
            f"{type(source).__name__} cannot give nodes by their ids; pass store= a function from "
            "node ids to embeddings, or embed_model= to embed their text"
        )
    return stored


def origin_embeddings(hits: Sequence[Hit], model: BaseEmbedding | None) -> Plan[dict[str, Vector]]:
    """Return the plan for embeddings from the stores that hits were found in, one request each."""
    origins: dict[int, Origin] = {}
    ids: dict[int, list[str]] = {}
    for hit in hits:
        origin = origin_of(hit)
        if origin is None or (model and origin.embed_model and origin.embed_model is not model):
            continue
        origins[id(origin.store)] = origin
        ids.setdefault(id(origin.store), []).append(hit.node.node_id)
    tasks = [
        Task(f"embeddings in {type(origin.store).__name__}", _stored(origin, ids[key]))
        for key, origin in origins.items()
    ]
    if not tasks:
        return {}
    outcomes: list[Outcome[dict[str, Vector] | None]] = yield Together(tasks)
    embeddings = [outcome.result() or {} for outcome in outcomes]
    return {id_: vector for vectors in embeddings for id_, vector in vectors.items()}


def origin_model(hits: Sequence[Hit]) -> BaseEmbedding | None:
    """Return the embedding model of the stores that hits were found in; None if unknown."""
    origins = [origin for hit in hits if (origin := origin_of(hit)) is not None]
    models = {id(origin.embed_model): origin.embed_model for origin in origins}
    declared = [model for model in models.values() if model is not None]
    names = {(type(model).__name__, model.model_name) for model in declared}
    if len(names) > 1:
        together = " and ".join(f"{kind} {name!r}" for kind, name in sorted(names))
        raise ConfigurationError(
            f"the hits come from stores with embeddings of different models, {together}; these "
            "cannot be compared; pass embed_model= with one of them"
        )
    return next(iter(declared), None)


def text_embeddings(hits: Sequence[Hit], model: BaseEmbedding) -> Plan[dict[str, Vector]]:
    """Return the plan for embeddings of the texts of hits by node id, in one batch."""
    texts = [hit.node.get_content(metadata_mode=MetadataMode.EMBED) for hit in hits]
    vectors: list[list[float]] = yield embed_texts(texts, model)
    return {hit.node.node_id: vector for hit, vector in zip(hits, vectors, strict=True)}


def embed_texts(texts: list[str], model: BaseEmbedding) -> Call[list[list[float]]]:
    """Return the call that embeds texts in one batch; async if that does not block the loop."""
    is_own = type(model)._aget_text_embeddings is not BaseEmbedding._aget_text_embeddings  # noqa: SLF001 - they have no public names
    is_async = awaits(model._aget_text_embeddings if is_own else model._aget_text_embedding)  # noqa: SLF001
    return Call(
        lambda: model.get_text_embedding_batch(texts),
        (lambda: model.aget_text_embedding_batch(texts)) if is_async else None,
    ).then(lambda vectors: [checked_embedding(model, vector) for vector in vectors])


def _stored(origin: Origin, ids: list[str]) -> Plan[dict[str, Vector] | None]:
    """Return the plan for the embeddings in a store; None if it cannot return nodes by id."""
    store = origin.store
    if isinstance(store, SimpleVectorStore):  # stores no nodes, only embeddings
        kept = store.data.embedding_dict
        return {node_id: kept[node_id] for node_id in ids if node_id in kept}
    if origin.nodes is not None and (call := origin.nodes(ids)) is not None:
        by_id: dict[str, BaseNode] = yield call
        return _embeddings(by_id.values())
    try:
        nodes: list[BaseNode] = yield Call(
            lambda: store.get_nodes(node_ids=ids),
            (lambda: store.aget_nodes(node_ids=ids)) if awaits(store.aget_nodes) else None,
        )
    except NotImplementedError:
        return None
    return _embeddings(nodes)


def _embeddings(nodes: Iterable[BaseNode]) -> dict[str, Vector]:
    return {node.node_id: node.embedding for node in nodes if node.embedding is not None}
