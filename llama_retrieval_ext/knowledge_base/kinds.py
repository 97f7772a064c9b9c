"""Names of the retrievers over a knowledge base, and their parameters, for type checkers.

What a name means is defined in `llama_retrieval_ext.config`; a test compares both.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.llms import LLM
    from llama_index.core.vector_stores.types import MetadataFilters

    from llama_retrieval_ext.config.embedding import EmbeddingConfig
    from llama_retrieval_ext.dates import Moment
    from llama_retrieval_ext.graph.entity_linking import EntityLinker
    from llama_retrieval_ext.pipeline.fusion import Fusion
    from llama_retrieval_ext.retrievers.kg_rule import Rules
    from llama_retrieval_ext.retrievers.knowledge_response import KnowledgePolicy
    from llama_retrieval_ext.scope import Scope
    from llama_retrieval_ext.stages.rerank.models import AnyReranker
    from llama_retrieval_ext.stages.selection import Collapse

StoreKind: TypeAlias = Literal["vector", "keyword", "hybrid"]
GraphKind: TypeAlias = Literal["graph", "kg_rule", "knowledge"]
PresetKind: TypeAlias = Literal["basic", "advanced", "semantic", "auto"]
# What the command line and HTTP offer: names that need at most a graph.
SearchKind: TypeAlias = Literal[StoreKind, GraphKind, PresetKind]
CompositeKind: TypeAlias = Literal[
    "dense",
    "bm25",
    "fusion",
    "hyde",
    "multi_query",
    "llama_dense",
    "llama_bm25",
    "llama_hybrid",
    "router",
    "recursive",
    "rerank",
    "auto_merging",
    "fallback",
]
Kind: TypeAlias = SearchKind | CompositeKind


class RetrieverArguments(TypedDict, total=False):
    """The arguments of ``kb.retriever`` for stores, graphs and presets, whichever a name takes."""

    top_k: int | None
    similarity_top_k: int | None
    filters: "MetadataFilters | None"
    scope: "Scope | None"
    name: str | None
    fields: Mapping[str, float] | None
    as_of: "Moment | None"
    known_at: "Moment | None"
    collapse: "Collapse | None"
    dense_weight: float
    sparse_weight: float
    alpha: float | None
    fusion: "Fusion | Literal['weighted', 'rrf'] | None"
    candidates: int
    pushdown: bool
    embedding_config: "EmbeddingConfig | Mapping[str, Any] | None"
    seed: "BaseRetriever | str | None"
    linker: "EntityLinker | None"
    language: str | None
    enable_multi_hop: bool | None
    max_hops: int | None
    max_entities: int
    fan_out: int | None
    rules: "Rules | None"
    policy: "KnowledgePolicy | None"
    base_retriever: "BaseRetriever | str"
    vector_weight: float
    graph_weight: float
    keyword_weight: float
    lambda_param: float
    intent_by_llm: bool
    llm: "LLM | None"
    reranker: "AnyReranker | None"
