"""Definitions of retrievers with others inside: ``hyde``, ``multi_query``, ``router`` and so on."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from llama_index.core.base.base_retriever import BaseRetriever
from pydantic import Field

from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.config.store_retrievers import TopK
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.pipeline.index_nodes import ScorePolicy
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.retrievers.auto_merging import AutoMergingRetriever, MergedScore
from llama_retrieval_ext.retrievers.fallback import FallbackRetriever
from llama_retrieval_ext.retrievers.intent import default_intent_rules
from llama_retrieval_ext.retrievers.llm_queries import HyDERetriever, MultiQueryRetriever
from llama_retrieval_ext.retrievers.recursive import RecursiveRetriever
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.retrievers.routing.rule_selector import RuleSelector
from llama_retrieval_ext.retrievers.routing.selectors import (
    EmbeddingSelector,
    LLMSelector,
    Selector,
)

Base: TypeAlias = BaseRetriever | str
Count: TypeAlias = Annotated[int, Field(ge=1)]
Params: TypeAlias = Mapping[str, object] | None
_ROOT = "root"


def hyde(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    base_retriever: Base = "dense",
    num_queries: Count = 3,
    include_original: bool = True,
    max_tokens: Count = 2000,
    base_retriever_params: Params = None,
    top_k: TopK = 10,
) -> BaseRetriever:
    """Search the base retriever with the query and hypothetical answers of an LLM."""
    return HyDERetriever(
        parts.retriever(base_retriever, base_retriever_params),
        parts.need_llm("hyde"),
        hyde_queries=num_queries,
        include_original=include_original,
        max_tokens=max_tokens,
        top_k=top_k,
    )


def multi_query(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    base_retriever: Base = "dense",
    num_queries: Count = 3,
    include_original: bool = True,
    rrf_k: Annotated[float, Field(ge=0)] = 60,
    base_retriever_params: Params = None,
    top_k: TopK = 10,
) -> BaseRetriever:
    """Search the base retriever with several rewordings of the query by an LLM."""
    return MultiQueryRetriever(
        parts.retriever(base_retriever, base_retriever_params),
        parts.need_llm("multi_query"),
        num_queries=num_queries,
        include_original=include_original,
        rrf_k=rrf_k,
        top_k=top_k,
    )


def router(
    parts: RegistryParts,
    *,
    routes: Mapping[str, Base] | None = None,
    descriptions: Mapping[str, str] | None = None,
    selector: Literal["rules", "embedding", "llm"] | Selector = "rules",
    fallback: str | None = None,
    top_k: TopK = 10,
) -> BaseRetriever:
    """Route each query to one retriever.

    Default routes: ``exact`` queries (with names, codes or quotes) to ``bm25``, all others to
    ``hybrid``.
    """
    chosen = {"exact": "bm25", "general": "hybrid"} if routes is None else routes
    if fallback is None and "general" in chosen:
        fallback = "general"
    texts = descriptions or {}
    unknown = sorted(set(texts) - set(chosen))
    if unknown:
        raise ConfigurationError(f"there are descriptions of no route: {', '.join(unknown)}")
    legs = {
        name: Route(parts.retriever(base), texts.get(name, name)) for name, base in chosen.items()
    }
    picks = _selector(parts, selector, list(legs))
    return RouterRetriever(picks, legs, fallback=fallback, max_routes=1, top_k=top_k)


def _selector(parts: RegistryParts, selector: str | Selector, routes: Sequence[str]) -> Selector:
    if isinstance(selector, Selector):
        return selector
    if selector == "llm":
        return LLMSelector(parts.need_llm("router"))
    if selector == "embedding":
        return EmbeddingSelector(parts.need_kb("router").embed_model)
    return RuleSelector([rule for rule in default_intent_rules().rules if rule.route in routes])


def recursive(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    base_retriever: Base = "hybrid",
    retrievers: Mapping[str, Base] | None = None,
    base_retriever_params: Params = None,
    max_depth: Count = 8,
    max_fan_out: Count = 100,
    policy: ScorePolicy = ScorePolicy.CHILD,
    top_k: TopK = 10,
) -> BaseRetriever:
    """Return the base retriever's hits, with index nodes replaced by their targets."""
    others = {name: parts.retriever(base) for name, base in (retrievers or {}).items()}
    if _ROOT in others:
        raise ConfigurationError(f"{_ROOT!r} is the base retriever; give the other a name")
    base = parts.retriever(base_retriever, base_retriever_params)
    return RecursiveRetriever(
        _ROOT,
        {_ROOT: base, **others},
        max_depth=max_depth,
        max_fan_out=max_fan_out,
        policy=policy,
        top_k=top_k,
    )


def rerank(
    parts: RegistryParts,
    *,
    base_retriever: Base = "hybrid",
    rerank_model: str | Refine | None = None,
    fetch_k: Count = 50,
    base_retriever_params: Params = None,
    top_k: TopK = 10,
) -> BaseRetriever:
    """Return the base retriever's hits in the order of a reranker, by default rules.

    ``rerank_model`` is ``rules``, ``llm``, ``embedding``, or the name of a cross-encoder.
    """
    base = parts.retriever(base_retriever, base_retriever_params)
    model = parts.reranker(rerank_model, "rerank")
    return RerankRetriever(base, model, top_k=top_k, fetch_k=max(fetch_k, top_k))


def auto_merging(
    parts: RegistryParts,
    *,
    base_retriever: Base = "hybrid",
    simple_ratio_thresh: Annotated[float, Field(ge=0, le=1)] = 0.5,
    merged_score: MergedScore = MergedScore.MEAN,
    base_retriever_params: Params = None,
    top_k: TopK = 10,
) -> BaseRetriever:
    """Return the base retriever's hits, with a parent in place of many of its children."""
    return AutoMergingRetriever(
        parts.retriever(base_retriever, base_retriever_params),
        parts.need_docstore("auto_merging"),
        simple_ratio_thresh,
        merged_score=merged_score,
        top_k=top_k,
    )


def fallback(
    parts: RegistryParts,
    *,
    retrievers: Sequence[Base] = ("hybrid", "bm25"),
    enough: Count = 1,
    top_k: TopK = 10,
) -> BaseRetriever:
    """Return the answer of the first retriever that finds enough."""
    legs = [
        Leg(base, parts.retriever(base)) if isinstance(base, str) else base for base in retrievers
    ]
    return FallbackRetriever(*legs, enough=enough, top_k=top_k)
