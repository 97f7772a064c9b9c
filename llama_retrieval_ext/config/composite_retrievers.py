"""Definitions of retrievers with others inside, and of those over graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import LLM
from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_retrieval_ext.config.embedding import EmbeddingConfig
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.config.store_retrievers import dense_and_bm25, depth_for, weighted_sum
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.graph.entity_linking import EntityLinker
from llama_retrieval_ext.graph.rules.rule_set import RuleSet
from llama_retrieval_ext.parameters import Count, Share, Weight
from llama_retrieval_ext.pipeline.index_nodes import ScorePolicy
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever
from llama_retrieval_ext.pipeline.stages import Refine, Rewrite
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.auto_merging import AutoMergingRetriever, MergedScore
from llama_retrieval_ext.retrievers.fallback import FallbackRetriever
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.retrievers.intent import rules_for
from llama_retrieval_ext.retrievers.kg_rule import KGRetriever, KGRuleRetriever
from llama_retrieval_ext.retrievers.knowledge import KnowledgeRetriever
from llama_retrieval_ext.retrievers.knowledge_response import KnowledgePolicy, knowledge_query
from llama_retrieval_ext.retrievers.llm_queries import HyDERetriever, MultiQueryRetriever
from llama_retrieval_ext.retrievers.recursive import RecursiveRetriever
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.retrievers.routing.llm_selector import LLMSelector
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.retrievers.routing.selectors import EmbeddingSelector, Selector
from llama_retrieval_ext.stages.fusion import RRF, RankConstant

Base: TypeAlias = BaseRetriever | str
Params: TypeAlias = Mapping[str, object] | None
_ROOT = "root"


def fusion(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    mode: Literal["rrf", "weighted"] = "rrf",
    dense_weight: Weight = 0.7,
    bm25_weight: Weight = 0.3,
    rrf_k: RankConstant = 60,
    rerank: bool = False,
    rerank_model: str | Refine | None = None,
    embedding_config: EmbeddingConfig | None = None,
    top_k: Count = 10,
) -> BaseRetriever:
    """Fuse ``dense`` and ``bm25`` by rank or by weighted sum, with an optional reranker."""
    depth = depth_for(top_k)
    legs = dense_and_bm25(parts, ("dense", "bm25"), depth, embedding_config)
    weights = {"dense": dense_weight, "bm25": bm25_weight}
    is_rrf = mode == "rrf"
    how = RRF(k=rrf_k, weights=weights) if is_rrf else weighted_sum(dense_weight, bm25_weight)
    if not rerank:
        if rerank_model is not None:
            raise ConfigurationError("rerank_model has no effect without rerank=True")
        return FusionRetriever(legs, how, top_k=top_k)
    fused = FusionRetriever(legs, how, top_k=depth)
    return RerankRetriever(fused, parts.rerank(rerank_model, "fusion"), top_k=top_k)


def hyde(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    base_retriever: Base = "dense",
    num_queries: Count = 3,
    include_original: bool = True,
    max_tokens: Count = 2000,
    base_retriever_params: Params = None,
    llm: LLM | None = None,
    top_k: Count = 10,
) -> BaseRetriever:
    """Search the base retriever with the query and hypothetical answers of an LLM."""
    return HyDERetriever(
        parts.retriever(base_retriever, base_retriever_params),
        parts.need_llm("hyde", llm),
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
    rrf_k: RankConstant = 60,
    base_retriever_params: Params = None,
    llm: LLM | None = None,
    top_k: Count = 10,
) -> BaseRetriever:
    """Search the base retriever with several rewordings of the query by an LLM."""
    return MultiQueryRetriever(
        parts.retriever(base_retriever, base_retriever_params),
        parts.need_llm("multi_query", llm),
        num_queries=num_queries,
        include_original=include_original,
        rrf_k=rrf_k,
        top_k=top_k,
    )


def router(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    routes: Mapping[str, Base] | None = None,
    descriptions: Mapping[str, str] | None = None,
    selector: Literal["rules", "embedding", "llm"] | Selector = "rules",
    fallback: str | None = None,
    llm: LLM | None = None,
    top_k: Count = 10,
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
    picks = _selector(replace(parts, llm=llm or parts.llm), selector, list(legs))
    return RouterRetriever(picks, legs, fallback=fallback, max_routes=1, top_k=top_k)


def _selector(parts: RegistryParts, selector: str | Selector, routes: Sequence[str]) -> Selector:
    if isinstance(selector, Selector):
        return selector
    if selector == "llm":
        return LLMSelector(parts.need_llm("router"))
    if selector == "embedding":
        return EmbeddingSelector(parts.model("router"))
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
    top_k: Count = 10,
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
    top_k: Count = 10,
) -> BaseRetriever:
    """Return the base retriever's hits in the order of a reranker, by default rules.

    ``rerank_model`` is ``rules``, ``llm``, ``embedding``, or a cross-encoder: ``fastembed:NAME``,
    or a name for sentence-transformers.
    """
    base = parts.retriever(base_retriever, base_retriever_params)
    model = parts.rerank(rerank_model, "rerank")
    return RerankRetriever(base, model, top_k=top_k, fetch_k=max(fetch_k, top_k))


def auto_merging(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    base_retriever: Base = "hybrid",
    simple_ratio_thresh: Share = 0.5,
    merged_score: MergedScore = "mean",
    base_retriever_params: Params = None,
    docstore: BaseDocumentStore | None = None,
    top_k: Count = 10,
) -> BaseRetriever:
    """Return the base retriever's hits, with a parent in place of many of its children."""
    return AutoMergingRetriever(
        parts.retriever(base_retriever, base_retriever_params),
        parts.need_docstore("auto_merging", docstore),
        simple_ratio_thresh,
        merged_score=merged_score,
        top_k=top_k,
    )


def fallback(
    parts: RegistryParts,
    *,
    retrievers: Sequence[Base] = ("hybrid", "bm25"),
    enough: Count = 1,
    top_k: Count = 10,
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
    linker: EntityLinker | None = None,
    enable_multi_hop: bool = True,
    max_hops: Count = 2,
    max_entities: Count = 10,
    fan_out: Count | None = 50,
    top_k: Count = 10,
) -> BaseRetriever:
    """Return passages linked in the graph to the seed's hits, or to names in the query."""
    graphs = parts.need_graph("graph")
    return GraphRetriever(
        parts.need_backend("graph"),
        graph=graphs,
        seed=None if seed is None else parts.retriever(seed, seed_params),
        embed_model=parts.model("graph"),
        linker=linker,
        enable_multi_hop=enable_multi_hop,
        max_hops=max_hops,
        max_entities=max_entities,
        fan_out=fan_out,
        top_k=top_k,
    )


def kg_rule(
    parts: RegistryParts,
    *,
    rules: str | RuleSet | None = None,
    linker: EntityLinker | None = None,
    language: str | None = None,
    top_k: Count = 10,
) -> BaseRetriever:
    """Return conclusions of rules about the processes named in a query, with proofs.

    ``rules`` are rules or the path of their file. The default is the bound rules, or else the rules
    for the requirements of a process. ``language``, such as ``zh``, is that of the query if None.
    """
    chosen = parts.rules if rules is None else rules
    backend = parts.need_graph("kg_rule").backend
    if chosen is None:
        return KGRetriever(backend, linker=linker, language=language, top_k=top_k)
    return KGRuleRetriever(backend, chosen, linker=linker, language=language, top_k=top_k)


@dataclass(frozen=True, slots=True, repr=False)
class InContext(Rewrite):
    """Rewrite that adds values to the context of a query; those of the query win."""

    context: Mapping[str, object] = field(default_factory=dict)

    def rewrite(self, query: Query) -> Query:
        """Return the query with the values in its context."""
        return query.but(context={**self.context, **query.context})


def knowledge(  # noqa: PLR0913 - the parameters of the name
    parts: RegistryParts,
    *,
    base_retriever: Base = "dense",
    rules: str | RuleSet | None = None,
    linker: EntityLinker | None = None,
    language: str | None = None,
    policy: KnowledgePolicy | None = None,
    chapter: str | None = None,
    engineering_type: str | None = None,
    processes: Sequence[str] | None = None,
    base_retriever_params: Params = None,
    top_k: Count = 10,
) -> BaseRetriever:
    """Return sentences of rules, followed by cases and templates of a base retriever."""
    side = {"rules": rules, "linker": linker, "language": language, "top_k": top_k}
    has_rules = parts.graph is not None or rules is not None
    retriever = KnowledgeRetriever(
        parts.retriever(base_retriever, base_retriever_params),
        parts.retriever("kg_rule", side) if has_rules else None,
        policy=policy,
        top_k=top_k,
    )
    context = knowledge_query("", chapter, engineering_type, processes).context
    return InContext(context) >> retriever if context else retriever
