"""Retrieval for LlamaIndex: hybrid search, composition, isolation, explanation.

The public names are loaded on first use, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from llama_retrieval_ext.errors import (
    CircuitOpenError,
    CompositionError,
    ConfigurationError,
    DeadlineExceededError,
    DimensionMismatchError,
    DuplicateNodeError,
    ExecutionError,
    IngestionError,
    InvalidFilterError,
    MissingDependencyError,
    ModelMismatchError,
    RetrievalExtError,
    RuleCycleError,
    RuleError,
    RuleSyntaxError,
    ScopeError,
    ScopeRequiredError,
    ScopeViolationError,
    ScoreError,
    StoreClosedError,
    StoreError,
    StoreFormatError,
    StoreUnavailableError,
    TooFewLegsError,
    UnsupportedFilterError,
    UnsupportedModeError,
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
    from llama_retrieval_ext.graph.embedded_store import EmbeddedPropertyGraphStore
    from llama_retrieval_ext.graph.entity_linking import EntityLinker
    from llama_retrieval_ext.graph.open import open_graph
    from llama_retrieval_ext.graph.rules.yaml import load_rules
    from llama_retrieval_ext.ingest.copy_report import CopyReport
    from llama_retrieval_ext.ingest.copying import copy_knowledge_base
    from llama_retrieval_ext.ingest.knowledge_base import KnowledgeBase
    from llama_retrieval_ext.query import Query, Scope
    from llama_retrieval_ext.ranking import Contribution, Hit, SearchResult
    from llama_retrieval_ext.stages.algebra.branches import branches
    from llama_retrieval_ext.stages.algebra.fusion import Fusion, Unscored
    from llama_retrieval_ext.stages.algebra.refine import Refine
    from llama_retrieval_ext.stages.algebra.retriever import Retriever
    from llama_retrieval_ext.stages.algebra.rewrite import FanOut, Rewrite
    from llama_retrieval_ext.stages.fusions.borda import Borda
    from llama_retrieval_ext.stages.fusions.consensus import Consensus
    from llama_retrieval_ext.stages.fusions.normalisation import Normalisation
    from llama_retrieval_ext.stages.fusions.relative_score import DistributionBased, RelativeScore
    from llama_retrieval_ext.stages.fusions.rrf import RRF
    from llama_retrieval_ext.stages.fusions.score_fusions import CombMNZ, Max
    from llama_retrieval_ext.stages.fusions.weighted_sum import WeightedSum
    from llama_retrieval_ext.stages.references.index_nodes import ScorePolicy
    from llama_retrieval_ext.stages.refining.collapse import Collapse
    from llama_retrieval_ext.stages.refining.dedupe import Alike, Dedupe
    from llama_retrieval_ext.stages.refining.long_context_reorder import LongContextReorder
    from llama_retrieval_ext.stages.refining.mmr import MMR
    from llama_retrieval_ext.stages.refining.recency import Curve, Recency
    from llama_retrieval_ext.stages.refining.score_decay import ScoreDecay
    from llama_retrieval_ext.stages.refining.threshold import Threshold
    from llama_retrieval_ext.stages.refining.top import Top
    from llama_retrieval_ext.stages.reranking.embedding_rerank import EmbeddingRerank
    from llama_retrieval_ext.stages.reranking.llm_rerank import LLMRerank
    from llama_retrieval_ext.stages.reranking.model_rerank import ModelRerank
    from llama_retrieval_ext.stages.reranking.postprocessed import Postprocessed
    from llama_retrieval_ext.stages.reranking.rerank_chain import RerankChain
    from llama_retrieval_ext.stages.reranking.reranker import Reranker
    from llama_retrieval_ext.stages.reranking.rule_rerank import RuleRerank
    from llama_retrieval_ext.stages.reranking.rule_weights import Boost, RuleWeights
    from llama_retrieval_ext.stages.reranking.score_kind import ScoreKind
    from llama_retrieval_ext.stages.rewriting.decompose import Decompose
    from llama_retrieval_ext.stages.rewriting.hyde import HyDE
    from llama_retrieval_ext.stages.rewriting.hyde_fan_out import HyDEFanOut
    from llama_retrieval_ext.stages.rewriting.multi_query import MultiQuery
    from llama_retrieval_ext.stages.rewriting.step_back import StepBack
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
    "CircuitOpenError",
    "Collapse",
    "CombMNZ",
    "CompositionError",
    "ConfigurationError",
    "Consensus",
    "Contribution",
    "CopyReport",
    "Curve",
    "DeadlineExceededError",
    "Decompose",
    "Dedupe",
    "DimensionMismatchError",
    "DistributionBased",
    "DuplicateNodeError",
    "EmbeddedPropertyGraphStore",
    "EmbeddedVectorStore",
    "EmbeddingRerank",
    "EmbeddingSelector",
    "EntityLinker",
    "ExecutionError",
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
    "IngestionError",
    "IntentAdaptiveRetriever",
    "IntentProfile",
    "InvalidFilterError",
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
    "ModelMismatchError",
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
    "RuleCycleError",
    "RuleError",
    "RuleRerank",
    "RuleSelector",
    "RuleSyntaxError",
    "RuleWeights",
    "Scope",
    "ScopeError",
    "ScopeRequiredError",
    "ScopeViolationError",
    "ScoreDecay",
    "ScoreError",
    "ScoreKind",
    "ScorePolicy",
    "SearchResult",
    "Selection",
    "Selector",
    "StepBack",
    "StoreClosedError",
    "StoreError",
    "StoreFormatError",
    "StoreUnavailableError",
    "Threshold",
    "Tokenizer",
    "TooFewLegsError",
    "Top",
    "Unscored",
    "UnsupportedFilterError",
    "UnsupportedModeError",
    "VectorRetriever",
    "WeightedSum",
    "branches",
    "copy_knowledge_base",
    "load_rules",
    "open_graph",
    "open_store",
    "resolve_embed_model",
]

_MODULES = {
    "Alike": "stages.refining.dedupe",
    "AutoMergingRetriever": "composite.auto_merging",
    "BM25Retriever": "basic.bm25",
    "Boost": "stages.reranking.rule_weights",
    "Borda": "stages.fusions.borda",
    "CascadeSelector": "composite.routing.cascade",
    "Choice": "composite.routing.selector",
    "Collapse": "stages.refining.collapse",
    "CombMNZ": "stages.fusions.score_fusions",
    "Consensus": "stages.fusions.consensus",
    "Contribution": "ranking",
    "CopyReport": "ingest.copy_report",
    "Curve": "stages.refining.recency",
    "Decompose": "stages.rewriting.decompose",
    "Dedupe": "stages.refining.dedupe",
    "DistributionBased": "stages.fusions.relative_score",
    "EmbeddedPropertyGraphStore": "graph.embedded_store",
    "EmbeddedVectorStore": "stores.embedded.store",
    "EmbeddingRerank": "stages.reranking.embedding_rerank",
    "EmbeddingSelector": "composite.routing.embedding_selector",
    "EntityLinker": "graph.entity_linking",
    "FallbackRetriever": "composite.fallback",
    "FanOut": "stages.algebra.rewrite",
    "Fusion": "stages.algebra.fusion",
    "GenericBackend": "stores.generic",
    "Hit": "ranking",
    "HyDE": "stages.rewriting.hyde",
    "HyDEFanOut": "stages.rewriting.hyde_fan_out",
    "HyDEMode": "composite.hyde_mode",
    "HyDERetriever": "composite.hyde",
    "HybridRetriever": "basic.hybrid",
    "IntentAdaptiveRetriever": "composite.intent",
    "IntentProfile": "composite.intent",
    "KeywordRetriever": "basic.keyword",
    "KnowledgeBase": "ingest.knowledge_base",
    "LLMRerank": "stages.reranking.llm_rerank",
    "LLMSelector": "composite.routing.llm_selector",
    "Leg": "execution.legs",
    "LocalEmbedding": "embeddings.local",
    "LongContextReorder": "stages.refining.long_context_reorder",
    "MMR": "stages.refining.mmr",
    "Max": "stages.fusions.score_fusions",
    "MergedScore": "composite.auto_merging",
    "ModelRerank": "stages.reranking.model_rerank",
    "MultiQuery": "stages.rewriting.multi_query",
    "MultiQueryRetriever": "composite.multi_query",
    "Normalisation": "stages.fusions.normalisation",
    "Postprocessed": "stages.reranking.postprocessed",
    "Query": "query",
    "QueryFusionRetriever": "composite.query_fusion",
    "RRF": "stages.fusions.rrf",
    "Recency": "stages.refining.recency",
    "RecursiveRetriever": "composite.recursive",
    "Refine": "stages.algebra.refine",
    "RelativeScore": "stages.fusions.relative_score",
    "RerankChain": "stages.reranking.rerank_chain",
    "RerankRetriever": "composite.rerank",
    "Reranker": "stages.reranking.reranker",
    "RetrievalPipeline": "composite.retrieval_pipeline",
    "Retriever": "stages.algebra.retriever",
    "Rewrite": "stages.algebra.rewrite",
    "Route": "composite.routing.router",
    "RouteRule": "composite.routing.rule_selector",
    "RouterRetriever": "composite.routing.router",
    "RuleRerank": "stages.reranking.rule_rerank",
    "RuleSelector": "composite.routing.rule_selector",
    "RuleWeights": "stages.reranking.rule_weights",
    "Scope": "query",
    "ScoreDecay": "stages.refining.score_decay",
    "ScoreKind": "stages.reranking.score_kind",
    "ScorePolicy": "stages.references.index_nodes",
    "SearchResult": "ranking",
    "Selection": "composite.routing.selector",
    "Selector": "composite.routing.selector",
    "StepBack": "stages.rewriting.step_back",
    "Threshold": "stages.refining.threshold",
    "Tokenizer": "text.tokenizer",
    "Top": "stages.refining.top",
    "Unscored": "stages.algebra.fusion",
    "VectorRetriever": "basic.vector",
    "WeightedSum": "stages.fusions.weighted_sum",
    "branches": "stages.algebra.branches",
    "copy_knowledge_base": "ingest.copying",
    "load_rules": "graph.rules.yaml",
    "open_graph": "graph.open",
    "open_store": "stores.opening",
    "resolve_embed_model": "embeddings.resolve",
}


# A type checker that saw it would take any misspelled name for one of ours.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
