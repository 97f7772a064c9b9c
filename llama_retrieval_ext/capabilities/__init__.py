"""Capabilities on top of retrieval: answers, style, analysis, insights, memory, intent, tools."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.capabilities.analysis import Analysis, DataAnalyzer, Finding
    from llama_retrieval_ext.capabilities.consolidation import Fading
    from llama_retrieval_ext.capabilities.factory import CapabilityBundle, CapabilityFactory
    from llama_retrieval_ext.capabilities.insight import Insight, InsightGenerator, InsightReport
    from llama_retrieval_ext.capabilities.intent import IntentRecognizer, RecognizedIntent
    from llama_retrieval_ext.capabilities.language_model import CallableLLM
    from llama_retrieval_ext.capabilities.memory import MemoryManager
    from llama_retrieval_ext.capabilities.memory_storage import Memory, documents_only
    from llama_retrieval_ext.capabilities.output_texts import OutputTexts
    from llama_retrieval_ext.capabilities.query_engine import GeneratedText
    from llama_retrieval_ext.capabilities.rag import (
        Citation,
        RAGAnswer,
        RAGGenerator,
        check_citations,
    )
    from llama_retrieval_ext.capabilities.style import StyleGenerator
    from llama_retrieval_ext.capabilities.tools import retrieval_tool


__all__ = [
    "Analysis",
    "CallableLLM",
    "CapabilityBundle",
    "CapabilityFactory",
    "Citation",
    "DataAnalyzer",
    "Fading",
    "Finding",
    "GeneratedText",
    "Insight",
    "InsightGenerator",
    "InsightReport",
    "IntentRecognizer",
    "Memory",
    "MemoryManager",
    "OutputTexts",
    "RAGAnswer",
    "RAGGenerator",
    "RecognizedIntent",
    "StyleGenerator",
    "check_citations",
    "documents_only",
    "retrieval_tool",
]

# Hidden from type checkers: they would accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.capabilities.analysis": ("Analysis", "DataAnalyzer", "Finding"),
        "llama_retrieval_ext.capabilities.language_model": ("CallableLLM",),
        "llama_retrieval_ext.capabilities.consolidation": ("Fading",),
        "llama_retrieval_ext.capabilities.factory": ("CapabilityBundle", "CapabilityFactory"),
        "llama_retrieval_ext.capabilities.insight": (
            "Insight",
            "InsightGenerator",
            "InsightReport",
        ),
        "llama_retrieval_ext.capabilities.intent": ("IntentRecognizer", "RecognizedIntent"),
        "llama_retrieval_ext.capabilities.memory": ("MemoryManager",),
        "llama_retrieval_ext.capabilities.memory_storage": ("Memory", "documents_only"),
        "llama_retrieval_ext.capabilities.output_texts": ("OutputTexts",),
        "llama_retrieval_ext.capabilities.query_engine": ("GeneratedText",),
        "llama_retrieval_ext.capabilities.rag": (
            *("Citation", "RAGAnswer", "RAGGenerator", "check_citations"),
        ),
        "llama_retrieval_ext.capabilities.style": ("StyleGenerator",),
        "llama_retrieval_ext.capabilities.tools": ("retrieval_tool",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
