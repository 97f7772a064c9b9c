"""Definitions of the presets: complete pipelines by name, made of what there is."""

import copy
from collections.abc import Mapping
from functools import wraps
from typing import Any, Final, Literal

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import LLM

from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.parameters import Count, FieldWeights, Share, Weight
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.retrievers.graph import GraphRetriever, Hops
from llama_retrieval_ext.retrievers.intent import IntentAdaptive, IntentProfile, rules_for
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.retrievers.routing.llm_selector import LLMSelector
from llama_retrieval_ext.retrievers.routing.selectors import CascadeSelector
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stages.rerank.mmr import MMR
from llama_retrieval_ext.stages.rerank.models import AnyReranker, RerankChain
from llama_retrieval_ext.stages.rerank.rules import RuleRerank, RuleWeights
from llama_retrieval_ext.stages.selection import BestPart

# Minimum number of hits of each part, as input of reranking and fusion.
_CANDIDATES: Final = 50
_CANDIDATES_PER_HIT: Final = 4


def basic(
    parts: RegistryParts, *, top_k: Count = 10, reranker: AnyReranker | None = None
) -> RetrievalPipeline:
    """Retrieval by meaning, reordered by the words that query and text share."""
    return _pipeline("basic", top_k, _vector(parts, top_k), _rerank(parts, reranker))


def advanced(  # noqa: PLR0913 - the options of the preset
    parts: RegistryParts,
    *,
    fusion: Literal["weighted", "rrf"] = "weighted",
    vector_weight: Weight = 0.6,
    graph_weight: Weight = 0.4,
    keyword_weight: Weight = 0.3,
    enable_multi_hop: bool | None = None,
    max_hops: Count | None = None,
    fields: FieldWeights | None = None,
    top_k: Count = 10,
    reranker: AnyReranker | None = None,
) -> RetrievalPipeline:
    """Meaning, relations and terms together, reranked; what there is no part for is left out.

    ``fusion="rrf"`` fuses meaning and relations alone, by reciprocal rank. ``enable_multi_hop`` and
    ``max_hops`` start the graph from the entities in the query instead of a seed. ``fields`` are
    those of the keyword search, with weights.
    """
    weights = {"vector": vector_weight, "keyword": keyword_weight, "graph": graph_weight}
    hops = Hops()
    if enable_multi_hop is not None:
        hops["enable_multi_hop"] = enable_multi_hop
    if max_hops is not None:
        hops["max_hops"] = max_hops
    parts_by_leg = {
        "vector": _vector(parts, top_k),
        "keyword": None if fusion == "rrf" else _keyword(parts, fields),
        "graph": _graph(parts, hops),
    }
    if fields is not None and parts_by_leg["keyword"] is None:
        raise ConfigurationError(
            "fields weighs keyword search, which is not part of 'advanced' here; leave fields out"
        )
    legs = {name: _deep(part, top_k) for name, part in parts_by_leg.items() if part is not None}
    if len(legs) == 1:
        what = "graph" if fusion == "rrf" else "graph and no keyword search"
        fallen_back = basic(parts, reranker=reranker, top_k=top_k)
        fallen_back.description = f"'advanced' is 'basic' here: there is no {what}"
        return fallen_back
    leg_weights = {leg: weights[leg] for leg in legs}
    scales = {leg: _SCALES[leg] for leg in legs}
    by_rank = fusion == "rrf"
    how = RRF(weights=leg_weights) if by_rank else WeightedSum(leg_weights, normalise=scales)
    languages = {"vector": parts.languages_unless(*(f"{leg}_weight" for leg in weights))}
    fused = branches(
        *(Leg(leg, part, languages=languages.get(leg, ())) for leg, part in legs.items())
    )
    return _pipeline("advanced", top_k, fused, how, _rerank(parts, reranker))


def semantic(
    parts: RegistryParts,
    *,
    lambda_param: Share = 0.7,
    intent_by_llm: bool = False,
    top_k: Count = 10,
    llm: LLM | None = None,
    reranker: AnyReranker | None = None,
) -> RetrievalPipeline:
    """Retrieval by meaning that follows the kind of question and avoids repetition.

    ``lambda_param`` is 1 for relevance alone, 0 for diversity alone. With ``intent_by_llm`` the LLM
    decides on questions whose kind no rule recognises.
    """
    selector = None
    if intent_by_llm:
        by_llm = LLMSelector(parts.need_llm("intent_by_llm", llm))
        selector = CascadeSelector(rules_for(_INTENTS), by_llm)
    return _pipeline(
        "semantic",
        top_k,
        _vector(parts, top_k),
        IntentAdaptive(_INTENTS, selector=selector),
        _rerank(parts, reranker) >> BestPart(),
        MMR(lambda_param, embed_model=parts.embed_model),
    )


@wraps(advanced, assigned=["__annotations__"])
def auto(parts: RegistryParts, **options: Any) -> RetrievalPipeline:  # noqa: ANN401 - of `advanced`
    """``advanced`` if there is a graph or keyword search, else ``basic``, as ``description`` says.

    The options are those of ``advanced``; without a graph those of the graph have no effect.
    """
    what = "neither a graph nor keyword search"
    if parts.graph is not None:
        what = "a graph"
    else:
        options = {
            name: value for name, value in options.items() if name not in Hops.__annotations__
        }
        if _keyword(parts, None) is not None:
            by_rrf = options.get("fusion") == "rrf"
            what = "no graph, which RRF needs" if by_rrf else "keyword search"
    chosen = advanced(parts, **options)
    chosen.description = f"auto chose {chosen.name!r}: there is {what}"
    return chosen


def _vector(parts: RegistryParts, top_k: int) -> BaseRetriever:
    return _deep(parts.retriever("vector"), top_k)


def _keyword(parts: RegistryParts, fields: Mapping[str, float] | None) -> BaseRetriever | None:
    if parts.need_backend("keyword").features.keyword is not None:
        return parts.retriever("keyword", None if fields is None else {"fields": fields})
    if fields is not None:
        raise ConfigurationError("the keyword search of this store has no fields; leave fields out")
    return parts.keyword


def _graph(parts: RegistryParts, hops: Hops) -> BaseRetriever | None:
    """Return the graph retriever with the hop options; None if there is no graph."""
    graph = None
    if parts.graph is not None:
        graph = parts.retriever("graph", {"seed": parts.graph_seed, "linker": parts.linker})
    if not hops:
        return graph
    if not isinstance(graph, GraphRetriever):
        raise ConfigurationError(
            f"{' and '.join(hops)} set up a GraphRetriever; the part 'graph' is "
            f"{'missing' if graph is None else repr(graph)}"
        )
    return graph.by_entities(**hops)


def _deep(part: BaseRetriever, top_k: int) -> BaseRetriever:
    """Return the part, or a copy with at least ``4 * top_k`` hits and at least 50."""
    depth = max(_CANDIDATES, _CANDIDATES_PER_HIT * top_k)
    if not isinstance(part, Retriever) or part.top_k is None or part.top_k >= depth:
        return part
    deeper = copy.copy(part)
    deeper.top_k = depth
    return deeper


def _rerank(parts: RegistryParts, reranker: AnyReranker | None) -> Refine:
    """Return the stage of the reranker, else of the bound one, else of rules."""
    chosen = parts.reranker if reranker is None else reranker
    return RuleRerank() if chosen is None else RerankChain(chosen)


def _pipeline(name: str, top_k: int, *stages: object) -> RetrievalPipeline:
    pipeline = RetrievalPipeline(name, top_k=top_k)
    for stage in stages:
        pipeline.add_stage(stage)
    return pipeline


# A score of 0 means no match for keywords and graphs; cosines have no such zero.
_SCALES: Final = {
    "vector": Normalisation.MIN_MAX,
    "keyword": Normalisation.FROM_ZERO,
    "graph": Normalisation.FROM_ZERO,
}


# Exact questions are reranked by terms, definitions by titles; others keep the vector order.
_INTENTS: Final = {
    "exact": IntentProfile(
        "an exact term, phrase, code or name",
        refine=(RuleRerank(RuleWeights(terms=2.0, phrase=1.0)),),
    ),
    "definition": IntentProfile(
        "what something is", refine=(RuleRerank(RuleWeights(previous_rank=2.0, title=1.0)),)
    ),
    "general": IntentProfile("any other question"),
}
