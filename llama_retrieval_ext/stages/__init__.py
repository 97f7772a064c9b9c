"""Fusions, rewrites, refinements and rerankers."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.formulas.normalisation import Normalisation
    from llama_retrieval_ext.stages.decay import Recency, ScoreDecay
    from llama_retrieval_ext.stages.fusion import RRF, Max, WeightedSum
    from llama_retrieval_ext.stages.rerank.chain import RerankChain
    from llama_retrieval_ext.stages.rerank.llm import LLMRerank
    from llama_retrieval_ext.stages.rerank.mmr import MMR
    from llama_retrieval_ext.stages.rerank.models import EmbeddingRerank, ModelRerank
    from llama_retrieval_ext.stages.rerank.reranker import Reranker
    from llama_retrieval_ext.stages.rerank.rules import Boost, RuleRerank, RuleWeights
    from llama_retrieval_ext.stages.rewrite.hyde import HyDE, HyDEFanOut
    from llama_retrieval_ext.stages.rewrite.multi_query import Decompose, MultiQuery, StepBack
    from llama_retrieval_ext.stages.selection import (
        BestPart,
        Collapse,
        Dedupe,
        LongContextReorder,
        Threshold,
        Top,
    )


__all__ = [
    "MMR",
    "RRF",
    "BestPart",
    "Boost",
    "Collapse",
    "Decompose",
    "Dedupe",
    "EmbeddingRerank",
    "HyDE",
    "HyDEFanOut",
    "LLMRerank",
    "LongContextReorder",
    "Max",
    "ModelRerank",
    "MultiQuery",
    "Normalisation",
    "Recency",
    "RerankChain",
    "Reranker",
    "RuleRerank",
    "RuleWeights",
    "ScoreDecay",
    "StepBack",
    "Threshold",
    "Top",
    "WeightedSum",
]

# Hidden from type checkers, which would otherwise accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.formulas.normalisation": ("Normalisation",),
        "llama_retrieval_ext.stages.decay": ("Recency", "ScoreDecay"),
        "llama_retrieval_ext.stages.fusion": ("Max", "RRF", "WeightedSum"),
        "llama_retrieval_ext.stages.rerank.chain": ("RerankChain",),
        "llama_retrieval_ext.stages.rerank.llm": ("LLMRerank",),
        "llama_retrieval_ext.stages.rerank.mmr": ("MMR",),
        "llama_retrieval_ext.stages.rerank.models": ("EmbeddingRerank", "ModelRerank"),
        "llama_retrieval_ext.stages.rerank.reranker": ("Reranker",),
        "llama_retrieval_ext.stages.rerank.rules": ("Boost", "RuleRerank", "RuleWeights"),
        "llama_retrieval_ext.stages.rewrite.hyde": ("HyDE", "HyDEFanOut"),
        "llama_retrieval_ext.stages.rewrite.multi_query": ("Decompose", "MultiQuery", "StepBack"),
        "llama_retrieval_ext.stages.selection": (
            "BestPart",
            "Collapse",
            "Dedupe",
            "LongContextReorder",
            "Threshold",
            "Top",
        ),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
