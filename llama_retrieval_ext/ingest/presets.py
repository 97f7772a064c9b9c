"""Presets over a knowledge base: its own retrievers are the parts."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

from llama_index.core.llms import LLM
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs
from llama_retrieval_ext.ingest.graph_search import CommonOptions, GraphOptions, graph_retriever
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.retrievers.presets import PresetParts, build_preset
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.retrievers.store_retriever import StoreRetriever
from llama_retrieval_ext.stages.rerank.chain import AnyReranker

if TYPE_CHECKING:
    from llama_retrieval_ext.ingest.searching import RetrieverOptions

# Parts that are no option of `build_preset`.
_PARTS: Final = ("llm", "reranker")
# Options of other kinds of retrievers.
_UNFIT: Final = ("fusion", "alpha", "candidates", "collapse")


class PresetOptions(TypedDict, total=False):
    """What presets take; see `build_preset`.

    Attributes:
        vector_weight: Weight of retrieval by meaning.
        graph_weight: Weight of the graph.
        keyword_weight: Weight of retrieval by words.
        lambda_param: From 1 for relevance alone to 0 for diversity alone.
        enable_multi_hop: Whether the graph is followed beyond passages that name an entity.
        max_hops: How far.
        intent_by_llm: Whether the LLM reads questions whose kind no rule recognises.
        llm: The LLM.
        reranker: Reranks in place of `RuleRerank`.
    """

    vector_weight: float
    graph_weight: float
    keyword_weight: float
    lambda_param: float
    enable_multi_hop: bool
    max_hops: int
    intent_by_llm: bool
    llm: LLM | None
    reranker: AnyReranker | None


class PresetArguments(PresetOptions, total=False):
    """What ``retriever`` takes for presets."""

    top_k: int
    filters: MetadataFilters | None
    scope: Scope | None
    name: str | None
    similarity_top_k: int | None


class KindOptions(GraphOptions, PresetOptions, total=False):
    """What some kinds take besides."""


def preset_retriever(
    name: str,
    legs: Mapping[str, StoreRetriever],
    graphs: PassageGraphs | None,
    options: Mapping[str, Any],
    wanted: "RetrieverOptions",
) -> RetrievalPipeline:
    """Return a preset over a knowledge base.

    Args:
        name: The preset.
        legs: ``vector``, and ``keyword`` where the engine has keyword search; with the filters and
            the scope.
        graphs: The graph; None for none.
        options: Those of the preset, and ``llm`` and ``reranker``.
        wanted: Those of all retrievers.

    Raises:
        ConfigurationError: There is no such option, or a part is missing.
    """
    others = {name: getattr(wanted, name) for name in _UNFIT} | {
        "pushdown": wanted.pushdown or None
    }
    unfit = [key for key, each in others.items() if each is not None]
    if unfit:
        raise ConfigurationError(
            f"the preset {name!r} takes no {', '.join(unfit)}; put stages behind it with >>"
        )
    common: CommonOptions = {
        "top_k": wanted.top_k,
        "filters": wanted.filters,
        "scope": wanted.scope,
        "name": "graph",
    }
    parts = PresetParts(
        vector=legs["vector"],
        keyword=legs.get("keyword"),
        graph=None if graphs is None else _walk(graphs, legs["vector"], common),
        embed_model=legs["vector"].embed_model,
        llm=options.get("llm"),
        reranker=options.get("reranker"),
    )
    settings = {key: each for key, each in options.items() if key not in _PARTS}
    made = build_preset(name, parts, top_k=wanted.top_k, **settings)
    made.name = made.name if wanted.name == name else wanted.name
    return made if wanted.scope is None else made.for_scope(wanted.scope)


def _walk(graphs: PassageGraphs, vector: StoreRetriever, common: CommonOptions) -> Retriever:
    """What the graph links to the hits of retrieval by meaning."""
    return graph_retriever("graph", graphs, vector, {}, common)
