"""Retrieval for LlamaIndex: hybrid search, composition, isolation, explanation.

The public names are loaded on first use, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from llama_retrieval_ext.errors import (
    CompositionError,
    ConfigurationError,
    MissingDependencyError,
    RetrievalExtError,
    ScopeError,
    StoreError,
)

if TYPE_CHECKING:
    from llama_retrieval_ext.basic.bm25 import BM25Retriever
    from llama_retrieval_ext.basic.hybrid import HybridRetriever
    from llama_retrieval_ext.basic.keyword import KeywordRetriever
    from llama_retrieval_ext.basic.vector import VectorRetriever
    from llama_retrieval_ext.composite.auto_merging import AutoMergingRetriever, MergedScore
    from llama_retrieval_ext.composite.fallback import FallbackRetriever
    from llama_retrieval_ext.composite.hyde import HyDERetriever
    from llama_retrieval_ext.composite.hyde_mode import HyDEMode
    from llama_retrieval_ext.composite.intent import IntentAdaptiveRetriever, IntentProfile
    from llama_retrieval_ext.composite.multi_query import MultiQueryRetriever
    from llama_retrieval_ext.composite.query_fusion import QueryFusionRetriever
    from llama_retrieval_ext.composite.recursive import RecursiveRetriever
    from llama_retrieval_ext.composite.rerank import RerankRetriever
    from llama_retrieval_ext.composite.retrieval_pipeline import RetrievalPipeline
    from llama_retrieval_ext.composite.routing.cascade import CascadeSelector
    from llama_retrieval_ext.composite.routing.embedding_selector import EmbeddingSelector
    from llama_retrieval_ext.composite.routing.llm_selector import LLMSelector
    from llama_retrieval_ext.composite.routing.router import Route, RouterRetriever
    from llama_retrieval_ext.composite.routing.rule_selector import RouteRule, RuleSelector
    from llama_retrieval_ext.composite.routing.selector import Choice, Selection, Selector
    from llama_retrieval_ext.embeddings.local import LocalEmbedding
    from llama_retrieval_ext.embeddings.resolve import resolve_embed_model
    from llama_retrieval_ext.execution.legs import Leg
    from llama_retrieval_ext.ingest.copy_report import CopyReport
    from llama_retrieval_ext.ingest.copying import copy_knowledge_base
    from llama_retrieval_ext.ingest.knowledge_base import KnowledgeBase
    from llama_retrieval_ext.query import Query, Scope
    from llama_retrieval_ext.ranking import Contribution, Hit, SearchResult
    from llama_retrieval_ext.stages.borda import Borda
    from llama_retrieval_ext.stages.branches import branches
    from llama_retrieval_ext.stages.consensus import Consensus
    from llama_retrieval_ext.stages.decompose import Decompose
    from llama_retrieval_ext.stages.dedupe import Alike, Dedupe
    from llama_retrieval_ext.stages.embedding_rerank import EmbeddingRerank
    from llama_retrieval_ext.stages.fusion import Fusion, Unscored
    from llama_retrieval_ext.stages.hyde import HyDE
    from llama_retrieval_ext.stages.hyde_fan_out import HyDEFanOut
    from llama_retrieval_ext.stages.index_nodes import ScorePolicy
    from llama_retrieval_ext.stages.llm_rerank import LLMRerank
    from llama_retrieval_ext.stages.long_context_reorder import LongContextReorder
    from llama_retrieval_ext.stages.mmr import MMR
    from llama_retrieval_ext.stages.model_rerank import ModelRerank
    from llama_retrieval_ext.stages.multi_query import MultiQuery
    from llama_retrieval_ext.stages.normalisation import Normalisation
    from llama_retrieval_ext.stages.postprocessed import Postprocessed
    from llama_retrieval_ext.stages.recency import Curve, Recency
    from llama_retrieval_ext.stages.refine import Refine
    from llama_retrieval_ext.stages.relative_score import DistributionBased, RelativeScore
    from llama_retrieval_ext.stages.rerank_chain import RerankChain
    from llama_retrieval_ext.stages.reranker import Reranker
    from llama_retrieval_ext.stages.retriever import Retriever
    from llama_retrieval_ext.stages.rewrite import FanOut, Rewrite
    from llama_retrieval_ext.stages.rrf import RRF
    from llama_retrieval_ext.stages.rule_rerank import RuleRerank
    from llama_retrieval_ext.stages.rule_weights import Boost, RuleWeights
    from llama_retrieval_ext.stages.score_decay import ScoreDecay
    from llama_retrieval_ext.stages.score_fusions import CombMNZ, Max
    from llama_retrieval_ext.stages.score_kind import ScoreKind
    from llama_retrieval_ext.stages.step_back import StepBack
    from llama_retrieval_ext.stages.threshold import Threshold
    from llama_retrieval_ext.stages.top import Top
    from llama_retrieval_ext.stages.weighted_sum import WeightedSum
    from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
    from llama_retrieval_ext.stores.generic import GenericBackend
    from llama_retrieval_ext.stores.opening import open_store
    from llama_retrieval_ext.text.tokenizer import Tokenizer

__version__ = "0.1.0"

__all__ = [
    "MMR",
    "RRF",
    "Alike",
    "AutoMergingRetriever",
    "BM25Retriever",
    "Boost",
    "Borda",
    "CascadeSelector",
    "Choice",
    "CombMNZ",
    "CompositionError",
    "ConfigurationError",
    "Consensus",
    "Contribution",
    "CopyReport",
    "Curve",
    "Decompose",
    "Dedupe",
    "DistributionBased",
    "EmbeddedVectorStore",
    "EmbeddingRerank",
    "EmbeddingSelector",
    "FallbackRetriever",
    "FanOut",
    "Fusion",
    "GenericBackend",
    "Hit",
    "HyDE",
    "HyDEFanOut",
    "HyDEMode",
    "HyDERetriever",
    "HybridRetriever",
    "IntentAdaptiveRetriever",
    "IntentProfile",
    "KeywordRetriever",
    "KnowledgeBase",
    "LLMRerank",
    "LLMSelector",
    "Leg",
    "LocalEmbedding",
    "LongContextReorder",
    "Max",
    "MergedScore",
    "MissingDependencyError",
    "ModelRerank",
    "MultiQuery",
    "MultiQueryRetriever",
    "Normalisation",
    "Postprocessed",
    "Query",
    "QueryFusionRetriever",
    "Recency",
    "RecursiveRetriever",
    "Refine",
    "RelativeScore",
    "RerankChain",
    "RerankRetriever",
    "Reranker",
    "RetrievalExtError",
    "RetrievalPipeline",
    "Retriever",
    "Rewrite",
    "Route",
    "RouteRule",
    "RouterRetriever",
    "RuleRerank",
    "RuleSelector",
    "RuleWeights",
    "Scope",
    "ScopeError",
    "ScoreDecay",
    "ScoreKind",
    "ScorePolicy",
    "SearchResult",
    "Selection",
    "Selector",
    "StepBack",
    "StoreError",
    "Threshold",
    "Tokenizer",
    "Top",
    "Unscored",
    "VectorRetriever",
    "WeightedSum",
    "branches",
    "copy_knowledge_base",
    "open_store",
    "resolve_embed_model",
]

_MODULES = {
    "Alike": "stages.dedupe",
    "AutoMergingRetriever": "composite.auto_merging",
    "BM25Retriever": "basic.bm25",
    "Boost": "stages.rule_weights",
    "Borda": "stages.borda",
    "CascadeSelector": "composite.routing.cascade",
    "Choice": "composite.routing.selector",
    "CombMNZ": "stages.score_fusions",
    "Consensus": "stages.consensus",
    "Contribution": "ranking",
    "CopyReport": "ingest.copy_report",
    "Curve": "stages.recency",
    "Decompose": "stages.decompose",
    "Dedupe": "stages.dedupe",
    "DistributionBased": "stages.relative_score",
    "EmbeddedVectorStore": "stores.embedded.store",
    "EmbeddingRerank": "stages.embedding_rerank",
    "EmbeddingSelector": "composite.routing.embedding_selector",
    "FallbackRetriever": "composite.fallback",
    "FanOut": "stages.rewrite",
    "Fusion": "stages.fusion",
    "GenericBackend": "stores.generic",
    "Hit": "ranking",
    "HyDE": "stages.hyde",
    "HyDEFanOut": "stages.hyde_fan_out",
    "HyDEMode": "composite.hyde_mode",
    "HyDERetriever": "composite.hyde",
    "HybridRetriever": "basic.hybrid",
    "IntentAdaptiveRetriever": "composite.intent",
    "IntentProfile": "composite.intent",
    "KeywordRetriever": "basic.keyword",
    "KnowledgeBase": "ingest.knowledge_base",
    "LLMRerank": "stages.llm_rerank",
    "LLMSelector": "composite.routing.llm_selector",
    "Leg": "execution.legs",
    "LocalEmbedding": "embeddings.local",
    "LongContextReorder": "stages.long_context_reorder",
    "MMR": "stages.mmr",
    "Max": "stages.score_fusions",
    "MergedScore": "composite.auto_merging",
    "ModelRerank": "stages.model_rerank",
    "MultiQuery": "stages.multi_query",
    "MultiQueryRetriever": "composite.multi_query",
    "Normalisation": "stages.normalisation",
    "Postprocessed": "stages.postprocessed",
    "Query": "query",
    "QueryFusionRetriever": "composite.query_fusion",
    "RRF": "stages.rrf",
    "Recency": "stages.recency",
    "RecursiveRetriever": "composite.recursive",
    "Refine": "stages.refine",
    "RelativeScore": "stages.relative_score",
    "RerankChain": "stages.rerank_chain",
    "RerankRetriever": "composite.rerank",
    "Reranker": "stages.reranker",
    "RetrievalPipeline": "composite.retrieval_pipeline",
    "Retriever": "stages.retriever",
    "Rewrite": "stages.rewrite",
    "Route": "composite.routing.router",
    "RouteRule": "composite.routing.rule_selector",
    "RouterRetriever": "composite.routing.router",
    "RuleRerank": "stages.rule_rerank",
    "RuleSelector": "composite.routing.rule_selector",
    "RuleWeights": "stages.rule_weights",
    "Scope": "query",
    "ScoreDecay": "stages.score_decay",
    "ScoreKind": "stages.score_kind",
    "ScorePolicy": "stages.index_nodes",
    "SearchResult": "ranking",
    "Selection": "composite.routing.selector",
    "Selector": "composite.routing.selector",
    "StepBack": "stages.step_back",
    "Threshold": "stages.threshold",
    "Tokenizer": "text.tokenizer",
    "Top": "stages.top",
    "Unscored": "stages.fusion",
    "VectorRetriever": "basic.vector",
    "WeightedSum": "stages.weighted_sum",
    "branches": "stages.branches",
    "copy_knowledge_base": "ingest.copying",
    "open_store": "stores.opening",
    "resolve_embed_model": "embeddings.resolve",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
