"""Presets: complete pipelines by name, built from given parts."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from pydantic import Field

from llama_retrieval_ext.checks import checked_call, is_number, nearest, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import check_top_k
from llama_retrieval_ext.retrievers.graph import GraphRetriever, Hops
from llama_retrieval_ext.retrievers.intent import IntentAdaptive, IntentProfile, rules_for
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.retrievers.routing.llm_selector import LLMSelector
from llama_retrieval_ext.retrievers.routing.selectors import CascadeSelector
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stages.rerank.chain import AnyReranker, RerankChain
from llama_retrieval_ext.stages.rerank.mmr import MMR
from llama_retrieval_ext.stages.rerank.rules import RuleRerank, RuleWeights
from llama_retrieval_ext.stages.selection import BestPart

# Minimum number of hits of each part, as input of reranking and fusion.
_CANDIDATES: Final = 50
_CANDIDATES_PER_HIT: Final = 4
Weight: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, kw_only=True)
class PresetParts:
    """Parts of presets; each preset says which it needs.

    Attributes:
        vector: Retrieval by meaning.
        keyword: Retrieval by terms.
        graph: Retrieval over a graph, such as a `GraphRetriever`.
        embed_model: The model of the stored embeddings, for diversity; None if the hits come from a
            store of this package, which has its model.
        languages: Languages that this model knows, such as ``("en",)``: for a question in another
            script the leg ``vector`` of a fusion has at most a tenth of the weight.
        llm: LLM, only for ``intent_by_llm``.
        reranker: Replacement of `RuleRerank`: a stage, a LlamaIndex postprocessor, or a model of
            the package ``rerankers``. If it fails, the order is unchanged and the answer is marked
            degraded.
    """

    vector: BaseRetriever | None = None
    keyword: BaseRetriever | None = None
    graph: BaseRetriever | None = None
    embed_model: BaseEmbedding | None = None
    languages: Sequence[str] = ()
    llm: LLM | None = None
    reranker: AnyReranker | None = None

    @property
    def present(self) -> list[str]:
        """Names of the parts that are set."""
        parts = (each.name for each in fields(self) if each.name != "languages")
        return [name for name in parts if getattr(self, name) is not None]

    def rerank(self) -> Refine:
        """Return the reranking stage."""
        return RuleRerank() if self.reranker is None else RerankChain(self.reranker)

    def deep(self, top_k: int) -> Mapping[str, BaseRetriever]:
        """Return the retrievers by name, with at least ``4 * top_k`` hits and at least 50."""
        if self.vector is None:
            there = ", ".join(self.present) or "nothing"
            raise ConfigurationError(
                f"a preset needs vector, which is missing; there is {there}: "
                "PresetParts(vector=retriever)"
            )
        depth = max(_CANDIDATES, _CANDIDATES_PER_HIT * check_top_k(top_k))
        legs = {name: getattr(self, name) for name in ("vector", "keyword", "graph")}
        return {name: _deep(each, depth) for name, each in legs.items() if each is not None}


def basic(parts: PresetParts, *, top_k: Count = 10) -> RetrievalPipeline:
    """Retrieval by meaning, reordered by the words that query and text share."""
    return _pipeline("basic", top_k, parts.deep(top_k)["vector"], parts.rerank())


def advanced(  # noqa: PLR0913 - the options of the preset
    parts: PresetParts,
    *,
    fusion: Literal["weighted", "rrf"] = "weighted",
    vector_weight: Weight = 0.6,
    graph_weight: Weight = 0.4,
    keyword_weight: Weight = 0.3,
    enable_multi_hop: bool | None = None,
    max_hops: Count | None = None,
    top_k: Count = 10,
) -> RetrievalPipeline:
    """Meaning, relations and terms together, reranked; what there is no part for is left out.

    ``fusion="rrf"`` fuses meaning and relations alone, by reciprocal rank. ``enable_multi_hop`` and
    ``max_hops`` start the graph from the entities in the query instead of a seed.
    """
    legs = dict(parts.deep(top_k))
    hops = Hops()
    if enable_multi_hop is not None:
        hops["enable_multi_hop"] = enable_multi_hop
    if max_hops is not None:
        hops["max_hops"] = max_hops
    if hops:
        legs["graph"] = _with_hops(legs.get("graph"), hops)
    if fusion == "rrf":
        legs.pop("keyword", None)
    elif fusion != "weighted":
        raise ConfigurationError(f"fusion is 'weighted' or 'rrf', got {fusion!r}")
    if len(legs) == 1:
        what = "graph" if fusion == "rrf" else "graph and no keyword search"
        fallen_back = basic(parts, top_k=top_k)
        fallen_back.description = f"'advanced' is 'basic' here: there is no {what}"
        return fallen_back
    weights = {"vector": vector_weight, "graph": graph_weight, "keyword": keyword_weight}
    own = {leg: _weight(weights[leg], leg) for leg in legs}
    how = RRF(weights=own) if fusion == "rrf" else WeightedSum(own, normalise=_scales(own))
    known = {"vector": parts.languages}
    fused = branches(*(Leg(leg, each, languages=known.get(leg, ())) for leg, each in legs.items()))
    return _pipeline("advanced", top_k, fused, how, parts.rerank())


def semantic(
    parts: PresetParts, *, lambda_param: Share = 0.7, intent_by_llm: bool = False, top_k: Count = 10
) -> RetrievalPipeline:
    """Retrieval by meaning that follows the kind of question and avoids repetition.

    ``lambda_param`` is 1 for relevance alone, 0 for diversity alone. With ``intent_by_llm`` the LLM
    decides on questions whose kind no rule recognises.
    """
    by_llm = of_type(intent_by_llm, bool, "intent_by_llm")
    if by_llm and parts.llm is None:
        raise ConfigurationError("intent_by_llm needs the part 'llm', an LLM: llm=...")
    return _pipeline(
        "semantic",
        top_k,
        parts.deep(top_k)["vector"],
        _intent(parts.llm if by_llm else None),
        parts.rerank() >> BestPart(),
        MMR(lambda_param, embed_model=parts.embed_model),
    )


@wraps(advanced, assigned=["__annotations__"])
def auto(parts: PresetParts, **options: Any) -> RetrievalPipeline:  # noqa: ANN401 - of `advanced`
    """``advanced`` if there is a graph or keyword search, else ``basic``, as ``description`` says.

    The options are those of ``advanced``; without a graph those of the graph have no effect.
    """
    if parts.graph is None:
        options = {name: each for name, each in options.items() if name not in Hops.__annotations__}
    chosen = advanced(parts, **options)
    reasons = {"graph": "a graph", "keyword": "keyword search"}
    there = [reason for part, reason in reasons.items() if part in parts.present]
    what = there[0] if there else "neither a graph nor keyword search"
    chosen.description = f"auto chose {chosen.name!r}: there is {what}"
    return chosen


PRESETS: Final[Mapping[str, Callable[..., RetrievalPipeline]]] = MappingProxyType(
    {"basic": basic, "advanced": advanced, "semantic": semantic, "auto": auto}
)


def build_preset(
    name: str, parts: PresetParts, *, top_k: int = 10, **options: object
) -> RetrievalPipeline:
    """Return the pipeline of a preset.

    Retrievers of this package with a smaller ``top_k`` return ``4 * top_k`` hits, at least 50, as
    input of the later stages.

    Args:
        name: ``basic``, ``advanced``, ``semantic``, or ``auto``, which chooses one; the pipeline
            then has the name of that preset, and its ``description`` has the reason.
        parts: Available parts. Retrievers of other packages work too.
        top_k: Number of hits if the query sets none; at least 1.
        options: Those of the function of this name in this module.

    Raises:
        ConfigurationError: The preset or an option is unknown, a part is missing, or a value is out
            of range.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> parts = PresetParts(vector=FakeRetriever([("a", 0.9, "sick leave")]))
        >>> basic = build_preset("auto", parts)
        >>> basic.name, basic.description  # doctest: +NORMALIZE_WHITESPACE
        ('basic', "auto chose 'basic': there is neither a graph nor keyword search")
        >>> len(basic.stages)
        2

    """
    of_type(parts, PresetParts, "parts", instead="write PresetParts(vector=retriever)")
    if name not in list(PRESETS):
        near = nearest(str(name), PRESETS)
        advice = f"did you mean {near!r}? " if near else ""
        there = ", ".join(map(repr, PRESETS))
        raise ConfigurationError(f"there is no preset {name!r}; {advice}There are {there}")
    return checked_call(PRESETS[name])(parts, top_k=top_k, **options)


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


def _scales(legs: Mapping[str, object]) -> dict[str, Normalisation]:
    return {leg: _SCALES[leg] for leg in legs}


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


def _intent(llm: LLM | None) -> IntentAdaptive:
    """Return the stage for the kind of question; without an LLM, by the default rules."""
    selector = None if llm is None else CascadeSelector(rules_for(_INTENTS), LLMSelector(llm))
    return IntentAdaptive(_INTENTS, selector=selector)


def _deep(part: BaseRetriever, depth: int) -> BaseRetriever:
    """Return the part, or a copy that returns at least ``depth`` hits."""
    if not isinstance(part, Retriever) or part.top_k is None or part.top_k >= depth:
        return part
    deeper = copy.copy(part)
    deeper.top_k = depth
    return deeper


def _with_hops(graph: BaseRetriever | None, hops: Hops) -> BaseRetriever:
    """Return the graph retriever with the hop options."""
    if not isinstance(graph, GraphRetriever):
        raise ConfigurationError(
            f"{' and '.join(hops)} set up a GraphRetriever; the part 'graph' is "
            f"{'missing' if graph is None else repr(graph)}"
        )
    return graph.by_entities(**hops)


def _weight(value: object, leg: str) -> float:
    if not is_number(value) or not isinstance(value, int | float) or value < 0:
        raise ConfigurationError(f"{leg}_weight must be a number of at least 0, got {value!r}")
    return float(value)
