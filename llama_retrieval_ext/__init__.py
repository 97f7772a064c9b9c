"""Retrieval for LlamaIndex: hybrid search, composition, isolation, explanation.

The public names are loaded on first use, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from llama_retrieval_ext.errors import (
    ArgumentError,
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
    UnstableIdWarning,
    UnsupportedFilterError,
    UnsupportedModeError,
)

if TYPE_CHECKING:
    from llama_retrieval_ext.embeddings.local import LocalEmbedding
    from llama_retrieval_ext.embeddings.resolve import resolve_embed_model
    from llama_retrieval_ext.execution.circuit_breaker import CircuitBreaker
    from llama_retrieval_ext.execution.legs import Leg
    from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
    from llama_retrieval_ext.formulas.normalisation import Normalisation
    from llama_retrieval_ext.graph.embedded_store import EmbeddedPropertyGraphStore
    from llama_retrieval_ext.graph.entity_linking import EntityLinker
    from llama_retrieval_ext.graph.open import open_graph
    from llama_retrieval_ext.graph.rules.requirements import ProcessRequirements
    from llama_retrieval_ext.graph.rules.yaml import load_rules
    from llama_retrieval_ext.graph.text_to_cypher import TextToCypher
    from llama_retrieval_ext.ingest.copy import CopyReport, copy_knowledge_base
    from llama_retrieval_ext.ingest.info import KnowledgeBaseInfo
    from llama_retrieval_ext.ingest.knowledge_base import KnowledgeBase
    from llama_retrieval_ext.ingest.readers import read_documents
    from llama_retrieval_ext.pipeline.branches import branches
    from llama_retrieval_ext.pipeline.fusion import Fusion, Unscored
    from llama_retrieval_ext.pipeline.index_nodes import ScorePolicy
    from llama_retrieval_ext.pipeline.postprocessor import Postprocessed
    from llama_retrieval_ext.pipeline.retriever import Retriever
    from llama_retrieval_ext.pipeline.stages import FanOut, Refine, Rewrite
    from llama_retrieval_ext.query import Query, Scope
    from llama_retrieval_ext.reordering import ScoreKind
    from llama_retrieval_ext.results import Contribution, Hit, SearchResult
    from llama_retrieval_ext.retrievers.auto_merging import AutoMergingRetriever, MergedScore
    from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
    from llama_retrieval_ext.retrievers.fallback import FallbackRetriever
    from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
    from llama_retrieval_ext.retrievers.hyde import HyDEMode, HyDERetriever
    from llama_retrieval_ext.retrievers.intent import IntentAdaptive, IntentAdaptiveRetriever
    from llama_retrieval_ext.retrievers.intent_profile import (
        IntentProfile,
        default_intent_profiles,
        default_intent_rules,
    )
    from llama_retrieval_ext.retrievers.keyword import KeywordRetriever
    from llama_retrieval_ext.retrievers.kg_rule import KGRetriever, KGRuleRetriever
    from llama_retrieval_ext.retrievers.knowledge import KnowledgeRetriever
    from llama_retrieval_ext.retrievers.knowledge_policy import KnowledgePolicy
    from llama_retrieval_ext.retrievers.knowledge_response import KnowledgeResponse, RetrievalItem
    from llama_retrieval_ext.retrievers.multi_query import MultiQueryRetriever
    from llama_retrieval_ext.retrievers.query_fusion import QueryFusionRetriever
    from llama_retrieval_ext.retrievers.recursive import RecursiveRetriever
    from llama_retrieval_ext.retrievers.rerank import RerankRetriever
    from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
    from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
    from llama_retrieval_ext.retrievers.routing.rule_selector import RouteRule, RuleSelector
    from llama_retrieval_ext.retrievers.routing.selectors import (
        CascadeSelector,
        Choice,
        EmbeddingSelector,
        LLMSelector,
        Selection,
        Selector,
    )
    from llama_retrieval_ext.retrievers.vector import VectorRetriever
    from llama_retrieval_ext.stages.decay import Curve, Recency, ScoreDecay
    from llama_retrieval_ext.stages.fusion import (
        RRF,
        Borda,
        CombMNZ,
        Consensus,
        DistributionBased,
        Max,
        RelativeScore,
        WeightedSum,
    )
    from llama_retrieval_ext.stages.rerank.chain import RerankChain
    from llama_retrieval_ext.stages.rerank.llm import LLMRerank
    from llama_retrieval_ext.stages.rerank.mmr import MMR
    from llama_retrieval_ext.stages.rerank.models import EmbeddingRerank, ModelRerank
    from llama_retrieval_ext.stages.rerank.reranker import Reranker
    from llama_retrieval_ext.stages.rerank.rules import Boost, RuleRerank, RuleWeights
    from llama_retrieval_ext.stages.rewrite.hyde import HyDE, HyDEFanOut
    from llama_retrieval_ext.stages.rewrite.multi_query import Decompose, MultiQuery, StepBack
    from llama_retrieval_ext.stages.selection import (
        Alike,
        Collapse,
        Dedupe,
        LongContextReorder,
        Threshold,
        Top,
    )
    from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
    from llama_retrieval_ext.stores.generic import GenericBackend
    from llama_retrieval_ext.stores.open import open_store
    from llama_retrieval_ext.text.tokenizer import Tokenizer

__version__ = "0.1.0"

__all__ = [
    "MMR",
    "RRF",
    "Alike",
    "ArgumentError",
    "AutoMergingRetriever",
    "BM25Retriever",
    "Boost",
    "Borda",
    "Call",
    "CascadeSelector",
    "Choice",
    "CircuitBreaker",
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
    "IntentAdaptive",
    "IntentAdaptiveRetriever",
    "IntentProfile",
    "InvalidFilterError",
    "KGRetriever",
    "KGRuleRetriever",
    "KeywordRetriever",
    "KnowledgeBase",
    "KnowledgeBaseInfo",
    "KnowledgePolicy",
    "KnowledgeResponse",
    "KnowledgeRetriever",
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
    "Outcome",
    "Plan",
    "Postprocessed",
    "ProcessRequirements",
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
    "RetrievalItem",
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
    "Task",
    "TextToCypher",
    "Threshold",
    "Together",
    "Tokenizer",
    "TooFewLegsError",
    "Top",
    "Unscored",
    "UnstableIdWarning",
    "UnsupportedFilterError",
    "UnsupportedModeError",
    "VectorRetriever",
    "WeightedSum",
    "branches",
    "copy_knowledge_base",
    "default_intent_profiles",
    "default_intent_rules",
    "load_rules",
    "open_graph",
    "open_store",
    "read_documents",
    "resolve_embed_model",
]

_MODULES = {
    "Alike": "stages.selection",
    "AutoMergingRetriever": "retrievers.auto_merging",
    "BM25Retriever": "retrievers.bm25",
    "Boost": "stages.rerank.rules",
    "Borda": "stages.fusion",
    "Call": "execution.plan",
    "CascadeSelector": "retrievers.routing.selectors",
    "Choice": "retrievers.routing.selectors",
    "CircuitBreaker": "execution.circuit_breaker",
    "Collapse": "stages.selection",
    "CombMNZ": "stages.fusion",
    "Consensus": "stages.fusion",
    "Contribution": "results",
    "CopyReport": "ingest.copy",
    "Curve": "stages.decay",
    "Decompose": "stages.rewrite.multi_query",
    "Dedupe": "stages.selection",
    "DistributionBased": "stages.fusion",
    "EmbeddedPropertyGraphStore": "graph.embedded_store",
    "EmbeddedVectorStore": "stores.embedded.store",
    "EmbeddingRerank": "stages.rerank.models",
    "EmbeddingSelector": "retrievers.routing.selectors",
    "EntityLinker": "graph.entity_linking",
    "FallbackRetriever": "retrievers.fallback",
    "FanOut": "pipeline.stages",
    "Fusion": "pipeline.fusion",
    "GenericBackend": "stores.generic",
    "Hit": "results",
    "HyDE": "stages.rewrite.hyde",
    "HyDEFanOut": "stages.rewrite.hyde",
    "HyDEMode": "retrievers.hyde",
    "HyDERetriever": "retrievers.hyde",
    "HybridRetriever": "retrievers.hybrid",
    "IntentAdaptive": "retrievers.intent",
    "IntentAdaptiveRetriever": "retrievers.intent",
    "IntentProfile": "retrievers.intent_profile",
    "KGRetriever": "retrievers.kg_rule",
    "KGRuleRetriever": "retrievers.kg_rule",
    "KeywordRetriever": "retrievers.keyword",
    "KnowledgeBase": "ingest.knowledge_base",
    "KnowledgeBaseInfo": "ingest.info",
    "KnowledgePolicy": "retrievers.knowledge_policy",
    "KnowledgeResponse": "retrievers.knowledge_response",
    "KnowledgeRetriever": "retrievers.knowledge",
    "LLMRerank": "stages.rerank.llm",
    "LLMSelector": "retrievers.routing.selectors",
    "Leg": "execution.legs",
    "LocalEmbedding": "embeddings.local",
    "LongContextReorder": "stages.selection",
    "MMR": "stages.rerank.mmr",
    "Max": "stages.fusion",
    "MergedScore": "retrievers.auto_merging",
    "ModelRerank": "stages.rerank.models",
    "MultiQuery": "stages.rewrite.multi_query",
    "MultiQueryRetriever": "retrievers.multi_query",
    "Normalisation": "formulas.normalisation",
    "Outcome": "execution.plan",
    "Plan": "execution.plan",
    "Postprocessed": "pipeline.postprocessor",
    "ProcessRequirements": "graph.rules.requirements",
    "Query": "query",
    "QueryFusionRetriever": "retrievers.query_fusion",
    "RRF": "stages.fusion",
    "Recency": "stages.decay",
    "RecursiveRetriever": "retrievers.recursive",
    "Refine": "pipeline.stages",
    "RelativeScore": "stages.fusion",
    "RerankChain": "stages.rerank.chain",
    "RerankRetriever": "retrievers.rerank",
    "Reranker": "stages.rerank.reranker",
    "RetrievalItem": "retrievers.knowledge_response",
    "RetrievalPipeline": "retrievers.retrieval_pipeline",
    "Retriever": "pipeline.retriever",
    "Rewrite": "pipeline.stages",
    "Route": "retrievers.routing.router",
    "RouteRule": "retrievers.routing.rule_selector",
    "RouterRetriever": "retrievers.routing.router",
    "RuleRerank": "stages.rerank.rules",
    "RuleSelector": "retrievers.routing.rule_selector",
    "RuleWeights": "stages.rerank.rules",
    "Scope": "query",
    "ScoreDecay": "stages.decay",
    "ScoreKind": "reordering",
    "ScorePolicy": "pipeline.index_nodes",
    "SearchResult": "results",
    "Selection": "retrievers.routing.selectors",
    "Selector": "retrievers.routing.selectors",
    "StepBack": "stages.rewrite.multi_query",
    "Task": "execution.plan",
    "TextToCypher": "graph.text_to_cypher",
    "Threshold": "stages.selection",
    "Together": "execution.plan",
    "Tokenizer": "text.tokenizer",
    "Top": "stages.selection",
    "Unscored": "pipeline.fusion",
    "VectorRetriever": "retrievers.vector",
    "WeightedSum": "stages.fusion",
    "branches": "pipeline.branches",
    "copy_knowledge_base": "ingest.copy",
    "default_intent_profiles": "retrievers.intent_profile",
    "default_intent_rules": "retrievers.intent_profile",
    "load_rules": "graph.rules.yaml",
    "open_graph": "graph.open",
    "open_store": "stores.open",
    "read_documents": "ingest.readers",
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
