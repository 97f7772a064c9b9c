"""Definitions of retrievers with others inside, of those over graphs, and of presets."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeAlias

from llama_index.core.base.base_retriever import BaseRetriever
from pydantic import Field

from llama_retrieval_ext.config.definitions import Definition, Parameter
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.config.store_retrievers import TopK, Weight
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.pipeline.index_nodes import ScorePolicy
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.retrievers.auto_merging import AutoMergingRetriever, MergedScore
from llama_retrieval_ext.retrievers.fallback import FallbackRetriever
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.retrievers.intent import rules_for
from llama_retrieval_ext.retrievers.kg_rule import KGRetriever, KGRuleRetriever
from llama_retrieval_ext.retrievers.knowledge import KnowledgeRetriever
from llama_retrieval_ext.retrievers.llm_queries import HyDERetriever, MultiQueryRetriever
from llama_retrieval_ext.retrievers.presets import PRESETS, build_preset
from llama_retrieval_ext.retrievers.recursive import RecursiveRetriever
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.retrievers.routing.llm_selector import LLMSelector
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.retrievers.routing.selectors import EmbeddingSelector, Selector

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
    return rules_for(routes)


def recursive(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    base_retriever: Base = "hybrid",
    retrievers: Mapping[str, Base] | None = None,
    base_retriever_params: Params = None,
    max_depth: Count = 8,
    max_fan_out: Count = 100,
    policy: ScorePolicy = "child",
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
    merged_score: MergedScore = "mean",
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


def graph(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    seed: Base | None = "hybrid",
    seed_params: Params = None,
    enable_multi_hop: bool = True,
    max_hops: Count = 2,
    max_entities: Count = 10,
    top_k: TopK = 10,
) -> BaseRetriever:
    """Return passages linked in the graph to the seed's hits, or to names in the query."""
    return GraphRetriever(
        parts.backend("graph"),
        graph=parts.need_graph("graph"),
        seed=None if seed is None else parts.retriever(seed, seed_params),
        embed_model=parts.need_kb("graph").embed_model,
        enable_multi_hop=enable_multi_hop,
        max_hops=max_hops,
        max_entities=max_entities,
        top_k=top_k,
    )


def kg_rule(parts: RegistryParts, *, rules: str | None = None, top_k: TopK = 10) -> BaseRetriever:
    """Return conclusions of rules about the processes named in a query, with proofs.

    ``rules`` is the path of a rule file. The default is the bound rules, or else the rules for the
    requirements of a process.
    """
    chosen = parts.rules if rules is None else rules
    backend = parts.need_graph("kg_rule").backend
    if chosen is None:
        return KGRetriever(backend, top_k=top_k)
    return KGRuleRetriever(backend, chosen, top_k=top_k)


def knowledge(
    parts: RegistryParts,
    *,
    base_retriever: Base = "dense",
    rules: str | None = None,
    base_retriever_params: Params = None,
    top_k: TopK = 10,
) -> BaseRetriever:
    """Return sentences of rules, followed by cases and templates of a base retriever."""
    has_graph = parts.graph is not None
    return KnowledgeRetriever(
        parts.retriever(base_retriever, base_retriever_params),
        kg_rule(parts, rules=rules, top_k=top_k) if has_graph or rules is not None else None,
        top_k=top_k,
    )


def preset_definitions() -> dict[str, Definition]:
    """Return the definitions of presets, by name; with the options of `PRESETS` as parameters."""
    return {
        name: Definition(
            name,
            partial(_preset, name),
            RetrievalPipeline,
            {
                **{key: Parameter(_TYPES[key], each) for key, each in preset.options.items()},
                "top_k": Parameter(TopK, 10),
            },
            takes_parts=True,
            description=f"The preset: {preset.description}.",
        )
        for name, preset in PRESETS.items()
    }


def _preset(name: str, parts: RegistryParts, **options: Any) -> RetrievalPipeline:  # noqa: ANN401
    return build_preset(name, parts.preset_parts(), **options)


_TYPES: Final[Mapping[str, object]] = {
    "vector_weight": Weight,
    "graph_weight": Weight,
    "keyword_weight": Weight,
    "enable_multi_hop": bool,
    "max_hops": Count,
    "lambda_param": Annotated[float, Field(ge=0, le=1)],
    "intent_by_llm": bool,
}


DEFINITIONS: Final = (
    *(hyde, multi_query, graph, kg_rule, knowledge),
    *(router, recursive, rerank, auto_merging, fallback),
)
