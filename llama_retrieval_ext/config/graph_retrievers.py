"""Definitions of retrievers over graphs, and of presets."""

from collections.abc import Callable
from typing import Annotated, Any, Final

from llama_index.core.base.base_retriever import BaseRetriever
from pydantic import Field

from llama_retrieval_ext.config.composite_retrievers import Base, Count, Params
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.config.store_retrievers import TopK, Weight
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.retrievers.kg_rule import KGRetriever, KGRuleRetriever
from llama_retrieval_ext.retrievers.knowledge import KnowledgeRetriever
from llama_retrieval_ext.retrievers.presets import build_preset
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline

_MAX_HOPS: Final = 2


def graph(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    seed: Base | None = "hybrid",
    seed_params: Params = None,
    enable_multi_hop: bool = True,
    max_hops: Count = _MAX_HOPS,
    max_entities: Count = 10,
    top_k: TopK = 10,
) -> BaseRetriever:
    """Passages that the graph links to what a seed finds; without one, to what the query names."""
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
    """What rules conclude of the processes that a query names, with proofs.

    ``rules`` is the path of a rule file; left out, the rules that were bound count, or else those
    for what a process requires.
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
    """Sentences of rules before cases and templates that a base retriever finds."""
    has_graph = parts.graph is not None
    return KnowledgeRetriever(
        parts.retriever(base_retriever, base_retriever_params),
        kg_rule(parts, rules=rules, top_k=top_k) if has_graph or rules is not None else None,
        top_k=top_k,
    )


def basic(parts: RegistryParts, *, top_k: TopK = 10) -> RetrievalPipeline:
    """The preset: retrieval by meaning, reordered by rules."""
    return build_preset("basic", parts.preset_parts(), top_k=top_k)


def advanced(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    vector_weight: Weight = 0.6,
    graph_weight: Weight = 0.4,
    keyword_weight: Weight = 0.3,
    enable_multi_hop: bool = True,
    max_hops: Count = _MAX_HOPS,
    top_k: TopK = 10,
) -> RetrievalPipeline:
    """The preset: meaning, relations and words, fused and reordered by rules."""
    options = _of_graph(parts, graph_weight, enable_multi_hop, max_hops)
    weights = {"vector_weight": vector_weight, "keyword_weight": keyword_weight}
    return build_preset("advanced", parts.preset_parts(), top_k=top_k, **weights, **options)


def semantic(
    parts: RegistryParts,
    *,
    lambda_param: Annotated[float, Field(ge=0, le=1)] = 0.7,
    intent_by_llm: bool = False,
    top_k: TopK = 10,
) -> RetrievalPipeline:
    """The preset: meaning, by the kind of question, without repetition."""
    options: dict[str, Any] = {"lambda_param": lambda_param, "intent_by_llm": intent_by_llm}
    return build_preset("semantic", parts.preset_parts(), top_k=top_k, **options)


def auto(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    vector_weight: Weight = 0.6,
    graph_weight: Weight = 0.4,
    keyword_weight: Weight = 0.3,
    enable_multi_hop: bool = True,
    max_hops: Count = _MAX_HOPS,
    top_k: TopK = 10,
) -> RetrievalPipeline:
    """The preset that fits what was bound: ``advanced`` with a graph, else ``basic``."""
    options = _of_graph(parts, graph_weight, enable_multi_hop, max_hops)
    weights = {"vector_weight": vector_weight, "keyword_weight": keyword_weight}
    return build_preset("auto", parts.preset_parts(), top_k=top_k, **weights, **options)


def _of_graph(
    parts: RegistryParts,
    graph_weight: float,
    enable_multi_hop: bool,  # noqa: FBT001 - private
    max_hops: int,
) -> dict[str, Any]:
    """The options of the graph, where there is one; hops where they are not the default."""
    if parts.graph is None:
        return {}
    hops = {} if enable_multi_hop else {"enable_multi_hop": False}
    return {
        "graph_weight": graph_weight,
        **hops,
        **({} if max_hops == _MAX_HOPS else {"max_hops": max_hops}),
    }


PRESET_DEFINITIONS: tuple[Callable[..., RetrievalPipeline], ...] = (
    basic,
    advanced,
    semantic,
    auto,
)
