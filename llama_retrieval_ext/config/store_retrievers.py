"""BM25 in memory over a knowledge base, and ``llama_dense``, ``llama_bm25``, ``llama_hybrid``."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Literal, TypeAlias

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.config.embedding import EmbeddingConfig, resolved
from llama_retrieval_ext.config.parts import NodeSource, RegistryParts
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import note_degraded
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.retrieval import hits_of
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.parameters import Count, Seconds, Weight
from llama_retrieval_ext.pipeline.branches import Branches, branches
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.bm25.retriever import BM25Retriever
from llama_retrieval_ext.retrievers.single_search import VectorRetriever
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.fusion import WeightedSum
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.stores.llama_index import ADDRESSES, llama_index_store
from llama_retrieval_ext.stores.open import open_store
from llama_retrieval_ext.urls import Location

# Number of cached scopes; the least recently used are dropped.
_MOST_SCOPES: Final = 32


@dataclass(slots=True)
class _CachedIndex:
    """Index of a scope, with its read time and the number of omitted nodes."""

    lock: Lock = field(default_factory=Lock)
    retriever: BM25Retriever | None = None
    read_at: float = 0.0
    left_out: int = 0


class KeptBM25Retriever(Retriever):
    """BM25 in memory over the nodes of a scope; old nodes are read again.

    Scores are min-max normalised over the hits of a query, to [0, 1]; equal ones are 1. Term
    statistics are those of the scope. It is thread-safe: the first query of a scope reads the
    nodes, and concurrent queries wait for it.

    Args:
        kb: The knowledge base.
        top_k: How many hits to return when the query does not say; at least 1.
        max_chunks: Maximum number of nodes searched in a scope, the first by id. If there are
            more, the answer is marked degraded.
        cache_ttl: Seconds after which the nodes are read again.
        name: Name in traces and ``Hit.source``.

    Raises:
        ConfigurationError: A number is out of range, or ``kb`` is not a knowledge base.

    Examples:
        >>> from llama_index.core import Document, MockEmbedding
        >>> from llama_retrieval_ext import KnowledgeBase
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     _ = kb.add([Document(text="Annual leave: 25 days."), Document(text="Lunch")])
        ...     print([hit.text for hit in KeptBM25Retriever(kb).retrieve("annual leave")])
        ['Annual leave: 25 days.']

    """

    def __init__(
        self,
        kb: NodeSource,
        *,
        top_k: Count = 5,
        max_chunks: Count = 5000,
        cache_ttl: Seconds = 60,
        name: str = "llama_bm25",
    ) -> None:
        super().__init__(top_k=top_k, name=name)
        self.kb = kb
        self.max_chunks = max_chunks
        self.cache_ttl = cache_ttl
        self.requires_scope = kb.require_scope
        self._indexes: OrderedDict[Scope | None, _CachedIndex] = OrderedDict()
        self._lock = Lock()

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Search the index of the scope, brought up to date first."""
        index = yield Call(lambda: self._current(query.scope))
        if index.left_out:
            note_degraded(
                self.name,
                f"only {self.max_chunks} nodes are searched, {index.left_out} are left out",
            )
        return (yield from hits_of(index.retriever, query, top_k=query.top_k, source=self.name))

    def _current(self, scope: Scope | None) -> _CachedIndex:
        with self._lock:
            index = self._indexes.setdefault(scope, _CachedIndex())
            self._indexes.move_to_end(scope)
            while len(self._indexes) > _MOST_SCOPES:
                self._indexes.popitem(last=False)
        with index.lock:
            is_old = time.monotonic() - index.read_at >= self.cache_ttl
            if index.retriever is None or is_old:
                nodes = self.kb.nodes(scope=scope, limit=self.max_chunks)
                index.retriever = BM25Retriever(nodes, normalise=True, name=self.name)
                index.left_out = max(0, self.kb.count(scope=scope) - len(nodes))
                index.read_at = time.monotonic()
        return index


StoreType: TypeAlias = Literal["embedded", "qdrant", "milvus", "es"]

# Number of candidates of each leg.
_CANDIDATES: Final = 50
# The store type of each engine.
_TYPES: Final[Mapping[str, StoreType]] = {
    "embedded": "embedded",
    "qdrant": "qdrant",
    "milvus": "milvus",
    "elasticsearch": "es",
}


def llama_dense(
    parts: RegistryParts,
    *,
    top_k: Count = 5,
    store_type: StoreType | None = None,
    store_params: Mapping[str, object] | None = None,
    embedding_config: EmbeddingConfig | None = None,
) -> BaseRetriever:
    """Return hits by meaning from a LlamaIndex vector store, by default the knowledge base's."""
    if embedding_config is not None and parts.embed_model is None:
        model = embedding_config.resolve()
    else:
        model = parts.model("llama_dense", embedding_config)
    if store_params:
        backend: Backend | BasePydanticVectorStore = _llama_store(
            store_type, store_params, parts.kb, lambda: len(model.get_query_embedding("dimension"))
        )
        close = getattr(backend, "close", None)
        if callable(close):
            parts.closers.append(close)
    else:
        backend = _own_backend(parts, store_type)
    return VectorRetriever(backend, embed_model=model, top_k=top_k, name="llama_dense")


def llama_bm25(
    parts: RegistryParts, *, top_k: Count = 5, max_chunks: Count = 5000, cache_ttl: Seconds = 60
) -> BaseRetriever:
    """Return hits by BM25 in memory over the nodes of a scope; scores are min-max normalised.

    Nodes are read again after ``cache_ttl`` seconds.
    """
    kb = parts.need_kb("llama_bm25")
    return KeptBM25Retriever(kb, top_k=top_k, max_chunks=max_chunks, cache_ttl=cache_ttl)


def llama_hybrid(
    parts: RegistryParts,
    *,
    dense_weight: Weight = 0.7,
    bm25_weight: Weight = 0.3,
    top_k: Count = 5,
    embedding_config: EmbeddingConfig | None = None,
) -> BaseRetriever:
    """Fuse ``llama_dense``, with its scores as they are, and ``llama_bm25`` by weighted sum."""
    legs = dense_and_bm25(parts, ("llama_dense", "llama_bm25"), depth_for(top_k), embedding_config)
    how = weighted_sum(dense_weight, bm25_weight)
    return FusionRetriever(legs, how, top_k=top_k, name="llama_hybrid")


def depth_for(top_k: int) -> int:
    """Return the number of candidates of each leg."""
    return max(_CANDIDATES, top_k)


def dense_and_bm25(
    parts: RegistryParts, names: tuple[str, str], depth: int, config: EmbeddingConfig | None
) -> Branches:
    """Return retrievers by name as legs; weights that nobody gave hold for known scripts."""
    dense, bm25 = names
    options = {} if config is None else {"embedding_config": config}
    languages = parts.languages_unless("dense_weight", "bm25_weight")
    return branches(
        Leg("dense", parts.retriever(dense, {"top_k": depth, **options}), languages=languages),
        bm25=parts.retriever(bm25, {"top_k": depth}),
    )


def weighted_sum(dense_weight: float, bm25_weight: float) -> WeightedSum:
    """Return the fusion of cosines as they are with BM25 scores by min-max."""
    return WeightedSum(
        {"dense": dense_weight, "bm25": bm25_weight},
        normalise={"dense": Normalisation.NONE, "bm25": Normalisation.MIN_MAX},
    )


# The setting of LlamaIndex's class with the address.
_ADDRESS: Final = {"milvus": "uri", "qdrant": "url", "es": "es_url"}


def _own_backend(parts: RegistryParts, store_type: StoreType | None) -> Backend:
    """Return the backend of the knowledge base, if its engine is that of ``store_type``."""
    kb = parts.need_kb("llama_dense")
    engine = Location.of(kb.url).engine
    actual = _TYPES.get(engine, engine)
    if store_type not in {None, actual}:
        raise ConfigurationError(
            f"llama_dense got store_type={store_type!r} without store_params, and the knowledge "
            f"base {kb.url} is on {actual!r}; pass store_params with the address of the store"
        )
    return parts.need_backend("llama_dense")


def _llama_store(
    store_type: StoreType | None,
    params: Mapping[str, object],
    kb: NodeSource | None,
    dimension: Callable[[], int],
) -> BasePydanticVectorStore:
    """Return a store by its URL, LlamaIndex's class with its own arguments, or the kb's store."""
    settings: dict[str, Any] = resolved(dict(params))
    url = settings.get("url")
    engine = Location.of(url).engine if isinstance(url, str) else ""
    if engine in _TYPES:
        if store_type not in {None, _TYPES[engine]}:
            raise ConfigurationError(f"store_type={store_type!r} is not the engine of {url!r}")
        settings.pop("url")
        return open_store(str(url), store_params=settings or None, must_exist=True)
    if store_type is None or store_type == "embedded":
        raise ConfigurationError(
            "llama_dense takes store_params={'url': 'embedded:./dir'} or another URL of a store, "
            f"or a store_type of {', '.join(_TYPES.values())} with the settings of LlamaIndex's "
            f"class; got store_type={store_type!r} and {', '.join(sorted(params))}"
        )
    if not any(settings.get(name) for name in ADDRESSES):
        if kb is not None and _TYPES.get(Location.of(kb.url).engine) == store_type:
            return open_store(kb.url, store_params=settings)
        where = "there is no knowledge base" if kb is None else f"the knowledge base is {kb.url}"
        raise ConfigurationError(
            f"llama_dense got store_type={store_type!r} and store_params without an address "
            f"({', '.join(sorted(settings))}), and {where}; write the address as "
            f"{_ADDRESS[store_type]!r} into store_params"
        )
    # Values that are in no file, such as those of environment variables.
    hidden = {*_texts(settings)}.difference(_texts(params))
    return llama_index_store(store_type, settings, dimension=dimension, hidden=hidden)


def _texts(value: object) -> Iterator[str]:
    """Yield all strings in nested settings."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
