"""Retrievers over stores, over graphs, over other retrievers, and by the kind of query."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.retrievers.auto_merging import AutoMergingRetriever
    from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
    from llama_retrieval_ext.retrievers.fallback import FallbackRetriever
    from llama_retrieval_ext.retrievers.graph import GraphRetriever
    from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
    from llama_retrieval_ext.retrievers.intent import (
        IntentAdaptive,
        IntentAdaptiveRetriever,
        IntentProfile,
        default_intent_profiles,
        default_intent_rules,
    )
    from llama_retrieval_ext.retrievers.kg_rule import KGRetriever, KGRuleRetriever
    from llama_retrieval_ext.retrievers.knowledge import KnowledgeRetriever
    from llama_retrieval_ext.retrievers.knowledge_response import (
        KnowledgePolicy,
        KnowledgeResponse,
        RetrievalItem,
    )
    from llama_retrieval_ext.retrievers.llm_queries import HyDERetriever, MultiQueryRetriever
    from llama_retrieval_ext.retrievers.presets import PresetParts, build_preset
    from llama_retrieval_ext.retrievers.query_fusion import QueryFusionRetriever
    from llama_retrieval_ext.retrievers.recursive import RecursiveRetriever
    from llama_retrieval_ext.retrievers.rerank import RerankRetriever
    from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
    from llama_retrieval_ext.retrievers.routing.llm_selector import LLMSelector
    from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
    from llama_retrieval_ext.retrievers.routing.rule_selector import RouteRule, RuleSelector
    from llama_retrieval_ext.retrievers.routing.selectors import (
        CascadeSelector,
        Choice,
        EmbeddingSelector,
        Selection,
        Selector,
    )
    from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever, VectorRetriever


__all__ = [
    "AutoMergingRetriever",
    "BM25Retriever",
    "CascadeSelector",
    "Choice",
    "EmbeddingSelector",
    "FallbackRetriever",
    "GraphRetriever",
    "HyDERetriever",
    "HybridRetriever",
    "IntentAdaptive",
    "IntentAdaptiveRetriever",
    "IntentProfile",
    "KGRetriever",
    "KGRuleRetriever",
    "KeywordRetriever",
    "KnowledgePolicy",
    "KnowledgeResponse",
    "KnowledgeRetriever",
    "LLMSelector",
    "MultiQueryRetriever",
    "PresetParts",
    "QueryFusionRetriever",
    "RecursiveRetriever",
    "RerankRetriever",
    "RetrievalItem",
    "RetrievalPipeline",
    "Route",
    "RouteRule",
    "RouterRetriever",
    "RuleSelector",
    "Selection",
    "Selector",
    "VectorRetriever",
    "build_preset",
    "default_intent_profiles",
    "default_intent_rules",
]

# Hidden from type checkers, which would otherwise accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.retrievers.auto_merging": ("AutoMergingRetriever",),
        "llama_retrieval_ext.retrievers.bm25": ("BM25Retriever",),
        "llama_retrieval_ext.retrievers.fallback": ("FallbackRetriever",),
        "llama_retrieval_ext.retrievers.graph": ("GraphRetriever",),
        "llama_retrieval_ext.retrievers.hybrid": ("HybridRetriever",),
        "llama_retrieval_ext.retrievers.intent": (
            "IntentAdaptive",
            "IntentAdaptiveRetriever",
            "IntentProfile",
            "default_intent_profiles",
            "default_intent_rules",
        ),
        "llama_retrieval_ext.retrievers.kg_rule": ("KGRetriever", "KGRuleRetriever"),
        "llama_retrieval_ext.retrievers.knowledge": ("KnowledgeRetriever",),
        "llama_retrieval_ext.retrievers.knowledge_response": (
            "KnowledgePolicy",
            "KnowledgeResponse",
            "RetrievalItem",
        ),
        "llama_retrieval_ext.retrievers.llm_queries": ("HyDERetriever", "MultiQueryRetriever"),
        "llama_retrieval_ext.retrievers.presets": ("PresetParts", "build_preset"),
        "llama_retrieval_ext.retrievers.query_fusion": ("QueryFusionRetriever",),
        "llama_retrieval_ext.retrievers.recursive": ("RecursiveRetriever",),
        "llama_retrieval_ext.retrievers.rerank": ("RerankRetriever",),
        "llama_retrieval_ext.retrievers.retrieval_pipeline": ("RetrievalPipeline",),
        "llama_retrieval_ext.retrievers.routing.router": ("Route", "RouterRetriever"),
        "llama_retrieval_ext.retrievers.routing.rule_selector": ("RouteRule", "RuleSelector"),
        "llama_retrieval_ext.retrievers.routing.llm_selector": ("LLMSelector",),
        "llama_retrieval_ext.retrievers.routing.selectors": (
            "CascadeSelector",
            "Choice",
            "EmbeddingSelector",
            "Selection",
            "Selector",
        ),
        "llama_retrieval_ext.retrievers.store_retriever": ("KeywordRetriever", "VectorRetriever"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
