"""Definitions of retrievers over graphs, and of presets."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

from llama_index.core.base.base_retriever import BaseRetriever
from pydantic import Field

from llama_retrieval_ext.config.composite_retrievers import Base, Count, Params
from llama_retrieval_ext.config.definitions import Definition, Parameter
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.config.store_retrievers import TopK, Weight
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.retrievers.kg_rule import KGRetriever, KGRuleRetriever
from llama_retrieval_ext.retrievers.knowledge import KnowledgeRetriever
from llama_retrieval_ext.retrievers.presets import PRESETS, build_preset
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline


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
