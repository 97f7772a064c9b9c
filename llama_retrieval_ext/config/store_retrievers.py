"""Definitions of retrievers over stores: ``dense``, ``bm25``, ``hybrid``, ``fusion`` and others."""

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Final, Literal, TypeAlias

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pydantic import Field

from llama_retrieval_ext.config.bm25 import KeptBM25Retriever, MinMaxScores
from llama_retrieval_ext.config.embedding import EmbeddingConfig, resolved
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.open import open_store
from llama_retrieval_ext.urls import Location

TopK: TypeAlias = Annotated[int, Field(ge=1)]
Weight: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
StoreType: TypeAlias = Literal["embedded", "qdrant", "milvus", "es"]

# Number of candidates of a reranker.
_CANDIDATES: Final = 50
# LlamaIndex's classes by our own names, so no configuration can import other code.
_STORES: Final[Mapping[str, tuple[str, str]]] = {
    "qdrant": ("qdrant", "QdrantVectorStore"),
    "milvus": ("milvus", "MilvusVectorStore"),
    "es": ("elasticsearch", "ElasticsearchStore"),
}


def dense(
    parts: RegistryParts, *, embedding_config: EmbeddingConfig | None = None, top_k: TopK = 10
) -> BaseRetriever:
    """Return hits by meaning."""
    model = parts.embed_model(embedding_config, "dense")
    return VectorRetriever(parts.backend("dense"), embed_model=model, top_k=top_k, name="dense")


def bm25(parts: RegistryParts, *, top_k: TopK = 10) -> BaseRetriever:
    """Return hits by words; scores are min-max normalised over the answer."""
    keyword = KeywordRetriever(parts.backend("bm25"), top_k=top_k, name="bm25")
    keyword.embed_model = parts.need_kb("bm25").embed_model  # for later stages, such as MMR
    return Pipeline(keyword, refines=[MinMaxScores()], top_k=top_k, name="bm25")


def hybrid(
    parts: RegistryParts,
    *,
    dense_weight: Weight = 0.7,
    sparse_weight: Weight = 0.3,
    embedding_config: EmbeddingConfig | None = None,
    top_k: TopK = 10,
) -> BaseRetriever:
    """Return hits by meaning and words, in one request if the engine supports it."""
    return HybridRetriever(
        parts.backend("hybrid"),
        embed_model=parts.embed_model(embedding_config, "hybrid"),
        top_k=top_k,
        alpha=_share(dense_weight, sparse_weight, "dense_weight", "sparse_weight"),
    )


def fusion(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    mode: Literal["rrf", "weighted"] = "rrf",
    dense_weight: Weight = 0.7,
    bm25_weight: Weight = 0.3,
    rrf_k: Annotated[float, Field(ge=0)] = 60,
    rerank: bool = False,
    rerank_model: str | Refine | None = None,
    embedding_config: EmbeddingConfig | None = None,
    top_k: TopK = 10,
) -> BaseRetriever:
    """Fuse ``dense`` and ``bm25`` by rank or by score, with an optional reranker."""
    depth = max(_CANDIDATES, top_k)
    legs = branches(
        dense=dense(parts, embedding_config=embedding_config, top_k=depth),
        bm25=bm25(parts, top_k=depth),
    )
    weights = {"dense": dense_weight, "bm25": bm25_weight}
    how = RRF(k=rrf_k, weights=weights) if mode == "rrf" else WeightedSum(weights)
    if not rerank:
        if rerank_model is not None:
            raise ConfigurationError("rerank_model has no effect without rerank=True")
        return FusionRetriever(legs, how, top_k=top_k)
    fused = FusionRetriever(legs, how, top_k=depth)
    return RerankRetriever(fused, parts.reranker(rerank_model, "fusion"), top_k=top_k)


def llama_dense(
    parts: RegistryParts,
    *,
    top_k: TopK = 5,
    store_type: StoreType | None = None,
    store_params: Mapping[str, object] | None = None,
    embedding_config: EmbeddingConfig | None = None,
) -> BaseRetriever:
    """Return hits by meaning from a LlamaIndex vector store, by default the knowledge base's."""
    if not store_params:
        return _own_dense(parts, store_type, embedding_config, top_k)
    engine = store_type or "embedded"
    store = _llama_store(engine, store_params)
    close = getattr(store, "close", None)
    if callable(close):
        parts.closers.append(close)
    if embedding_config is not None and parts.kb is None:
        model = embedding_config.resolve()
    else:
        model = parts.embed_model(embedding_config, "llama_dense")
    return VectorRetriever(store, embed_model=model, top_k=top_k, name="llama_dense")


def llama_bm25(
    parts: RegistryParts,
    *,
    top_k: TopK = 5,
    max_chunks: Annotated[int, Field(ge=1)] = 5000,
    cache_ttl: Annotated[float, Field(gt=0)] = 60,
) -> BaseRetriever:
    """Return hits by BM25 in memory over the nodes of a scope; old nodes are read again."""
    kb = parts.need_kb("llama_bm25")
    return KeptBM25Retriever(kb, top_k=top_k, max_chunks=max_chunks, cache_ttl=cache_ttl)


def llama_hybrid(
    parts: RegistryParts,
    *,
    dense_weight: Weight = 0.7,
    bm25_weight: Weight = 0.3,
    top_k: TopK = 5,
    embedding_config: EmbeddingConfig | None = None,
) -> BaseRetriever:
    """Fuse ``llama_dense`` and ``llama_bm25`` by score."""
    depth = max(_CANDIDATES, top_k)
    legs = branches(
        dense=llama_dense(parts, top_k=depth, embedding_config=embedding_config),
        bm25=llama_bm25(parts, top_k=depth),
    )
    how = WeightedSum({"dense": dense_weight, "bm25": bm25_weight})
    return FusionRetriever(legs, how, top_k=top_k, name="llama_hybrid")


def _own_dense(
    parts: RegistryParts,
    store_type: StoreType | None,
    embedding_config: EmbeddingConfig | None,
    top_k: int,
) -> Retriever:
    kb = parts.need_kb("llama_dense")
    engine = Location.of(kb.url).engine
    own = "es" if engine == "elasticsearch" else engine
    if store_type not in {None, own}:
        raise ConfigurationError(
            f"llama_dense got store_type={store_type!r} without store_params, and the knowledge "
            f"base {kb.url} is on {own!r}; pass store_params with the address of the store"
        )
    model = parts.embed_model(embedding_config, "llama_dense")
    backend = parts.backend("llama_dense")
    return VectorRetriever(backend, embed_model=model, top_k=top_k, name="llama_dense")


def _llama_store(engine: str, params: Mapping[str, object]) -> BasePydanticVectorStore:
    """Return a store by its URL, or LlamaIndex's class with its own arguments."""
    settings: dict[str, Any] = resolved(dict(params))
    url = settings.get("url")
    if isinstance(url, str) and url.partition(":")[0].rstrip("s") in _SCHEMES:
        settings.pop("url")
        return open_store(url, store_params=settings or None, must_exist=True)
    if engine not in _STORES:
        raise ConfigurationError(
            "the store type 'embedded' takes store_params={'url': 'embedded:./dir'}, or none for "
            f"the knowledge base's own; got {', '.join(sorted(params))}"
        )
    module, name = _STORES[engine]
    try:
        kind = getattr(import_module(f"llama_index.vector_stores.{module}"), name)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(name, package=f"llama-index-vector-stores-{module}") from error
    try:
        store: BasePydanticVectorStore = kind(**settings)
    except Exception as error:  # noqa: BLE001 - whatever LlamaIndex's class raises
        # The class's own message may contain its settings, including a password.
        raise ConfigurationError(
            f"{name} refuses the settings {', '.join(sorted(settings))}: {type(error).__name__}"
        ) from None
    return store


_SCHEMES: Final = ("embedded", "qdrant", "milvus", "elasticsearch")


def _share(first: float, second: float, *names: str) -> float:
    """Return the first weight as a share of both."""
    if first + second <= 0:
        raise ConfigurationError(f"one of {' and '.join(names)} must be above 0")
    return first / (first + second)
