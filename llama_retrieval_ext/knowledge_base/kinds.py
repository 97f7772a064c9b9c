"""The kinds of retrievers over a knowledge base, and the arguments of each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict, get_args

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import nearest
from llama_retrieval_ext.errors import ArgumentError, ConfigurationError
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.retrievers.hybrid import CANDIDATES, HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import (
    KeywordRetriever,
    StoreRetriever,
    VectorRetriever,
)
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.engine.backend import Backend

if TYPE_CHECKING:
    from llama_index.core.llms import LLM

    from llama_retrieval_ext.graph.entity_linking import EntityLinker
    from llama_retrieval_ext.graph.passage_graphs import PassageGraphs
    from llama_retrieval_ext.retrievers.kg_rule import Rules
    from llama_retrieval_ext.retrievers.knowledge_response import KnowledgePolicy
    from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
    from llama_retrieval_ext.stages.rerank.chain import AnyReranker

StoreKind: TypeAlias = Literal["vector", "keyword", "hybrid"]
GraphKind: TypeAlias = Literal["graph", "kg_rule", "knowledge"]
PresetKind: TypeAlias = Literal["basic", "advanced", "semantic", "auto"]
Kind: TypeAlias = StoreKind | GraphKind | PresetKind

_STORE_KINDS: Final[tuple[str, ...]] = get_args(StoreKind)
_PRESETS: Final[tuple[str, ...]] = get_args(PresetKind)
# Kinds that need a graph, with the options of each.
_GRAPH_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "graph": ("seed", "linker", "enable_multi_hop", "max_hops", "max_entities", "fan_out"),
    "kg_rule": ("rules", "linker"),
    "knowledge": ("rules", "linker", "policy"),
}
# Preset options that `build_preset` takes as parts.
_PRESET_PARTS: Final = ("llm", "reranker")


class PresetOptions(TypedDict, total=False):
    """The options of presets; see `build_preset`."""

    vector_weight: float
    graph_weight: float
    keyword_weight: float
    lambda_param: float
    enable_multi_hop: bool
    max_hops: int
    intent_by_llm: bool
    llm: "LLM | None"
    reranker: "AnyReranker | None"


class GraphOptions(TypedDict, total=False):
    """The options of `GraphRetriever`, `KGRuleRetriever` and `KnowledgeRetriever`; see there."""

    seed: BaseRetriever | None
    linker: "EntityLinker | None"
    enable_multi_hop: bool
    max_hops: int
    max_entities: int
    fan_out: int | None
    rules: "Rules | None"
    policy: "KnowledgePolicy | None"


class KindOptions(GraphOptions, PresetOptions, total=False):
    """The options that only some kinds have."""


class _AnyArguments(TypedDict, total=False):
    """The arguments of ``retriever`` common to all kinds and presets."""

    top_k: int
    filters: MetadataFilters | None
    scope: Scope | None
    name: str | None
    similarity_top_k: int | None


class StoreArguments(_AnyArguments, total=False):
    """The arguments of ``retriever`` for any kind."""

    fusion: Fusion | None
    alpha: float | None
    pushdown: bool
    collapse: Collapse | None
    candidates: int | None


class GraphArguments(StoreArguments, GraphOptions, total=False):
    """The arguments of ``retriever`` for kinds that need a graph."""


class PresetArguments(_AnyArguments, PresetOptions, total=False):
    """The arguments of ``retriever`` for presets."""


class _CommonArguments(TypedDict):
    """The constructor arguments common to all retrievers."""

    top_k: int
    filters: MetadataFilters | None
    scope: Scope | None
    name: str


@dataclass(frozen=True, slots=True)
class RetrieverRequest:
    """The kind of a retriever and its common arguments."""

    kind: str
    top_k: int
    filters: MetadataFilters | None
    scope: Scope | None
    fusion: Fusion | None
    alpha: float | None
    pushdown: bool
    collapse: Collapse | None
    candidates: int | None
    name: str

    def common(self, name: str = "") -> _CommonArguments:
        """Return the constructor arguments common to all retrievers."""
        return {
            "top_k": self.top_k,
            "filters": self.filters,
            "scope": self.scope,
            "name": name or self.name,
        }

    def non_default(self, *names: str) -> list[str]:
        """Return the arguments that differ from their defaults."""
        return [name for name in names if getattr(self, name) not in (None, False)]


@dataclass(frozen=True, slots=True)
class Searched:
    """The objects that a retriever of a knowledge base searches."""

    backend: Backend
    embed_model: BaseEmbedding
    graphs: "PassageGraphs | None"


def build_retriever(
    request: RetrieverRequest, options: Mapping[str, Any], searched: Searched
) -> Retriever:
    """Return a retriever over a knowledge base."""
    kind = request.kind
    if kind in _PRESETS:
        return _preset(request, options, searched)
    _check_options(kind, options)
    if kind in _GRAPH_KINDS:
        return _over_graph(request, options, searched)
    if kind not in _STORE_KINDS:
        kinds = [*_STORE_KINDS, *_GRAPH_KINDS, *_PRESETS]
        near = nearest(str(kind), kinds)
        advice = "" if near is None else f"did you mean {near!r}? "
        raise ConfigurationError(
            f"there is no retriever {kind!r}; {advice}Write one of {', '.join(map(repr, kinds))}"
        )
    if kind != "hybrid" and request.non_default("fusion", "alpha", "candidates", "pushdown"):
        raise ConfigurationError(
            "fusion, alpha, candidates and pushdown are for 'hybrid', which has two rankings to "
            f"fuse; {kind!r} has one"
        )
    return _over_store(request, searched)


def _check_options(kind: str, options: Mapping[str, object]) -> None:
    known = [*_GRAPH_KINDS.get(kind, ()), *StoreArguments.__annotations__]
    for name, value in options.items():
        if name not in known:
            near = nearest(name, known)
            instead = f"it takes {', '.join(known)}" if near is None else f"write {near}={value!r}"
            raise ArgumentError(f"retriever({kind!r}) has no argument {name!r}; {instead}")


def _over_store(request: RetrieverRequest, searched: Searched) -> StoreRetriever:
    backend, model, collapse = searched.backend, searched.embed_model, request.collapse
    if request.kind == "vector":
        return VectorRetriever(backend, embed_model=model, collapse=collapse, **request.common())
    if request.kind == "keyword":
        retriever = KeywordRetriever(backend, collapse=collapse, **request.common())
        retriever.embed_model = model  # for stages behind it, such as MMR
        return retriever
    return HybridRetriever(
        backend,
        embed_model=model,
        fusion=request.fusion,
        alpha=request.alpha,
        candidates=CANDIDATES if request.candidates is None else request.candidates,
        pushdown=request.pushdown,
        collapse=collapse,
        **request.common(),
    )


def _over_graph(
    request: RetrieverRequest, options: Mapping[str, Any], searched: Searched
) -> Retriever:
    from llama_retrieval_ext.retrievers.kg_rule import KGRetriever, KGRuleRetriever  # noqa: PLC0415
    from llama_retrieval_ext.retrievers.knowledge import KnowledgeRetriever  # noqa: PLC0415

    kind, graphs = request.kind, searched.graphs
    if graphs is None:
        raise ConfigurationError(
            f"a retriever {kind!r} needs a knowledge base with a graph: "
            "KnowledgeBase.open(url, embed_model=..., graph='graph:./dir')"
        )
    if request.collapse is not None:
        raise ConfigurationError(f"{kind!r} has no collapse; put Collapse behind it with >>")
    hybrid = replace(request, kind="hybrid", filters=None, scope=None, name="hybrid")
    search = _over_store(hybrid, searched)
    if kind == "graph":
        return _graph_walk(graphs, {"seed": search, **options, **request.common()}, searched)
    rules, linker = options.get("rules"), options.get("linker")
    own: dict[str, Any] = {**request.common()} if kind == "kg_rule" else {}
    by_rule = (
        KGRetriever(graphs.backend, linker=linker, **own)
        if rules is None
        else KGRuleRetriever(graphs.backend, rules, linker=linker, **own)
    )
    if kind == "kg_rule":
        return by_rule
    return KnowledgeRetriever(search, by_rule, policy=options.get("policy"), **request.common())


def _graph_walk(
    graphs: "PassageGraphs", arguments: Mapping[str, Any], searched: Searched
) -> Retriever:
    from llama_retrieval_ext.retrievers.graph import GraphRetriever  # noqa: PLC0415 - scipy

    return GraphRetriever(
        searched.backend, graph=graphs, embed_model=searched.embed_model, **arguments
    )


def _preset(
    request: RetrieverRequest, options: Mapping[str, Any], searched: Searched
) -> "RetrievalPipeline":
    from llama_retrieval_ext.retrievers.presets import PresetParts, build_preset  # noqa: PLC0415

    kind = request.kind
    unfit = request.non_default("fusion", "alpha", "candidates", "collapse", "pushdown")
    if unfit:
        raise ConfigurationError(
            f"the preset {kind!r} takes no {', '.join(unfit)}; put stages behind it with >>"
        )
    has_keyword = searched.backend.features.keyword is not None
    kinds = ["vector", "keyword"] if has_keyword else ["vector"]
    legs = {each: _over_store(replace(request, kind=each, name=each), searched) for each in kinds}
    walk: Mapping[str, Any] = {"seed": legs["vector"], **request.common("graph")}
    parts = PresetParts(
        vector=legs["vector"],
        keyword=legs.get("keyword"),
        graph=None if searched.graphs is None else _graph_walk(searched.graphs, walk, searched),
        embed_model=searched.embed_model,
        llm=options.get("llm"),
        reranker=options.get("reranker"),
    )
    settings = {key: each for key, each in options.items() if key not in _PRESET_PARTS}
    pipeline = build_preset(kind, parts, top_k=request.top_k, **settings)
    if request.name != kind:
        pipeline.name = request.name
    return pipeline if request.scope is None else pipeline.for_scope(request.scope)
