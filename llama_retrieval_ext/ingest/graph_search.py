"""Retrievers over a knowledge base and its graph."""

from collections.abc import Mapping
from typing import Any, Final, TypedDict

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import nearest
from llama_retrieval_ext.errors import ArgumentError
from llama_retrieval_ext.graph.entity_linking import EntityLinker
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.retrievers.kg_rule import KGRetriever, KGRuleRetriever, Rules
from llama_retrieval_ext.retrievers.knowledge import KnowledgeRetriever
from llama_retrieval_ext.retrievers.knowledge_policy import KnowledgePolicy
from llama_retrieval_ext.retrievers.store_retriever import StoreRetriever
from llama_retrieval_ext.stages.selection import Collapse


class CommonOptions(TypedDict):
    """What every retriever over a knowledge base takes."""

    top_k: int
    filters: MetadataFilters | None
    scope: Scope | None
    name: str


class GraphOptions(TypedDict, total=False):
    """What retrievers over a graph take besides; see the classes that have them.

    Attributes:
        seed: Of `GraphRetriever`; left out, hybrid search.
        linker: Of `GraphRetriever` and `KGRuleRetriever`.
        enable_multi_hop: Of `GraphRetriever`.
        max_hops: Of `GraphRetriever`.
        max_entities: Of `GraphRetriever`.
        fan_out: Of `GraphRetriever`.
        rules: Of `KGRuleRetriever`; left out, those of `KGRetriever`.
        policy: Of `KnowledgeRetriever`.
    """

    seed: BaseRetriever | None
    linker: EntityLinker | None
    enable_multi_hop: bool
    max_hops: int
    max_entities: int
    fan_out: int | None
    rules: Rules | None
    policy: KnowledgePolicy | None


class StoreArguments(TypedDict, total=False):
    """What ``retriever`` takes for any kind."""

    top_k: int
    filters: MetadataFilters | None
    scope: Scope | None
    fusion: Fusion | None
    alpha: float | None
    pushdown: bool
    collapse: Collapse | None
    candidates: int | None
    name: str | None
    similarity_top_k: int | None


class GraphArguments(StoreArguments, GraphOptions, total=False):
    """What ``retriever`` takes for kinds that need a graph."""


# The kinds that need a graph, with the options of each.
GRAPH_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "graph": ("seed", "linker", "enable_multi_hop", "max_hops", "max_entities", "fan_out"),
    "kg_rule": ("rules", "linker"),
    "knowledge": ("rules", "linker", "policy"),
}


def check_graph_options(kind: str, options: GraphOptions) -> None:
    """Raise ArgumentError for options that a kind of retriever has not."""
    known = [*GRAPH_KINDS.get(kind, ()), *StoreArguments.__annotations__]
    for name, value in options.items():
        if name not in known:
            near = nearest(name, known)
            instead = f"it takes {', '.join(known)}" if near is None else f"write {near}={value!r}"
            raise ArgumentError(f"retriever({kind!r}) has no argument {name!r}; {instead}")


def graph_retriever(
    kind: str,
    graphs: PassageGraphs,
    search: StoreRetriever,
    options: GraphOptions,
    common: CommonOptions,
) -> Retriever:
    """Return a retriever over a graph and the store of its passages.

    Args:
        kind: One of `GRAPH_KINDS`.
        graphs: The graph.
        search: A search of the store: the seed of a walk, or the side of cases.
        options: Those of the kind.
        common: Those of all.
    """
    if kind == "graph":
        walk: Mapping[str, Any] = {"seed": search, **options, **common}  # Any: its own arguments
        return GraphRetriever(search.backend, graph=graphs, embed_model=search.embed_model, **walk)
    rules, linker = options.get("rules"), options.get("linker")
    own: dict[str, Any] = {**common} if kind == "kg_rule" else {}
    by_rule = (
        KGRetriever(graphs.backend, linker=linker, **own)
        if rules is None
        else KGRuleRetriever(graphs.backend, rules, linker=linker, **own)
    )
    if kind == "kg_rule":
        return by_rule
    return KnowledgeRetriever(search, by_rule, policy=options.get("policy"), **common)
