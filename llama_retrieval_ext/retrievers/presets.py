"""Presets: complete pipelines by name, built from given parts."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM

from llama_retrieval_ext.checks import is_number, nearest, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import check_top_k
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.retrievers.intent import IntentAdaptive, IntentProfile, rules_for
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.retrievers.routing.llm_selector import LLMSelector
from llama_retrieval_ext.retrievers.routing.selectors import CascadeSelector
from llama_retrieval_ext.stages.fusion import WeightedSum
from llama_retrieval_ext.stages.rerank.chain import AnyReranker, RerankChain
from llama_retrieval_ext.stages.rerank.mmr import MMR
from llama_retrieval_ext.stages.rerank.rules import RuleRerank, RuleWeights
from llama_retrieval_ext.stages.selection import BestPart

# Minimum number of hits of each part, as input of reranking and fusion.
_CANDIDATES: Final = 50
_CANDIDATES_PER_HIT: Final = 4
AUTO: Final = "auto"


@dataclass(frozen=True, kw_only=True)
class PresetParts:
    """Parts of presets; `Preset.needs` lists the required ones.

    Attributes:
        vector: Retrieval by meaning.
        keyword: Retrieval by terms.
        graph: Retrieval over a graph, such as a `GraphRetriever`.
        embed_model: The model of the stored embeddings, for diversity; None if the hits come from a
            store of this package, which has its model.
        llm: LLM, only for ``intent_by_llm``.
        reranker: Replacement of `RuleRerank`: a stage, a LlamaIndex postprocessor, or a model of
            the package ``rerankers``. If it fails, the order is unchanged and the answer is marked
            degraded.
    """

    vector: BaseRetriever | None = None
    keyword: BaseRetriever | None = None
    graph: BaseRetriever | None = None
    embed_model: BaseEmbedding | None = None
    llm: LLM | None = None
    reranker: AnyReranker | None = None

    @property
    def present(self) -> list[str]:
        """Names of the parts that are set."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not None]

    def rerank(self) -> Refine:
        """Return the reranking stage."""
        return RuleRerank() if self.reranker is None else RerankChain(self.reranker)


@dataclass(frozen=True)
class Preset:
    """Definition of a preset: expression, required parts and options.

    Attributes:
        expression: The pipeline as an expression.
        description: Purpose of the preset.
        needs: Names of the required parts.
        needs_one_of: Names of parts of which one is required; may be empty.
        options: Options with their defaults.
    """

    expression: str
    description: str
    needs: tuple[str, ...] = ("vector",)
    needs_one_of: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)

    def missing(self, parts: PresetParts) -> list[str]:
        """Return the missing parts, in words."""
        alternatives = [] if not self.needs_one_of else [" or ".join(self.needs_one_of)]
        has_one = any(name in parts.present for name in self.needs_one_of)
        return [
            *(name for name in self.needs if name not in parts.present),
            *([] if has_one else alternatives),
        ]


PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        "basic": Preset(
            "vector >> RuleRerank()",
            "retrieval by meaning, reordered by the words that query and text share",
        ),
        "advanced": Preset(
            "branches(vector=vector, graph=graph, keyword=keyword) >> WeightedSum({'vector': 0.6, "
            "'graph': 0.4, 'keyword': 0.3}) >> RuleRerank()",
            "meaning, relations and terms together; without the leg of which there is no part",
            needs_one_of=("graph", "keyword"),
            options={
                "vector_weight": 0.6,
                "graph_weight": 0.4,
                "keyword_weight": 0.3,
                "enable_multi_hop": True,
                "max_hops": 2,
            },
        ),
        "semantic": Preset(
            "vector >> IntentAdaptive(...) >> (RuleRerank() >> BestPart()) >> MMR(0.7)",
            "retrieval by meaning that follows the kind of question and avoids repetition",
            options={"lambda_param": 0.7, "intent_by_llm": False},
        ),
        AUTO: Preset(
            "advanced if there is a graph, else basic",
            "what the parts allow; options of a preset that is not chosen have no effect",
            options={
                "vector_weight": 0.6,
                "graph_weight": 0.4,
                "keyword_weight": 0.3,
                "lambda_param": 0.7,
                "intent_by_llm": False,
                "enable_multi_hop": True,
                "max_hops": 2,
            },
        ),
    }
)


def build_preset(
    name: str, parts: PresetParts, *, top_k: int = 10, **options: object
) -> RetrievalPipeline:
    """Return the pipeline of a preset.

    Retrievers of this package with a smaller ``top_k`` return ``4 * top_k`` hits, at least 50, as
    input of the later stages.

    Args:
        name: A name in `PRESETS`. ``auto`` chooses a preset; the pipeline then has the name of that
            preset, and its ``description`` has the reason.
        parts: Available parts. Retrievers of other packages work too.
        top_k: Number of hits if the query sets none; at least 1.
        options: Options that `PRESETS` lists for the preset: ``vector_weight``, ``graph_weight``
            and ``keyword_weight`` of fusion; ``enable_multi_hop`` and ``max_hops`` of a
            `GraphRetriever`, which then starts from the entities in the query instead of a seed,
            because a walk from a seed does not count hops; ``lambda_param``, from 1 for relevance
            alone to 0 for diversity alone; ``intent_by_llm``, whether ``semantic`` uses the LLM for
            questions whose kind no rule recognises.

    Raises:
        ConfigurationError: The preset or an option is unknown, a part is missing, or a value is out
            of range.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> parts = PresetParts(vector=FakeRetriever([("a", 0.9, "sick leave")]))
        >>> basic = build_preset("auto", parts)
        >>> basic.name, basic.description
        ('basic', "auto chose 'basic': there is no graph")
        >>> len(basic.stages)
        2
        >>> build_preset("advanced", parts)
        Traceback (most recent call last):
            ...
        llama_retrieval_ext.errors.ConfigurationError: the preset 'advanced' needs graph or ...

    """
    of_type(parts, PresetParts, "parts", instead="write PresetParts(vector=retriever)")
    check_top_k(top_k)
    chosen, reason = _chosen(name, parts)
    _check_options(name, options)
    _check_parts(chosen, parts)
    if name == "advanced":
        _check_graph_options(parts, options)
    applicable = {key: each for key, each in options.items() if key in PRESETS[chosen].options}
    settings = {**PRESETS[chosen].options, **applicable}
    depth = max(_CANDIDATES, _CANDIDATES_PER_HIT * top_k)
    deep = {leg: _deep(getattr(parts, leg), depth) for leg in ("vector", "keyword", "graph")}
    if chosen == "advanced":
        deep["graph"] = _with_hops(deep["graph"], applicable)
    pipeline = RetrievalPipeline(chosen, top_k=top_k, description=reason)
    for stage in _STAGES[chosen](parts, deep, settings):
        pipeline.add_stage(stage)
    return pipeline


_Legs = Mapping[str, BaseRetriever | None]


def _basic(parts: PresetParts, legs: _Legs, _: Mapping[str, object]) -> list[object]:
    return [legs["vector"], parts.rerank()]


def _advanced(parts: PresetParts, legs: _Legs, options: Mapping[str, object]) -> list[object]:
    there = {leg: each for leg, each in legs.items() if each is not None}
    fusion = WeightedSum(
        {leg: _number(options, f"{leg}_weight") for leg in there},
        normalise={leg: _SCALES[leg] for leg in there},
    )
    return [branches(*(Leg(leg, each) for leg, each in there.items())), fusion, parts.rerank()]


# A score of 0 means no match for keywords and graphs; cosines have no such zero.
_SCALES: Final = {
    "vector": Normalisation.MIN_MAX,
    "keyword": Normalisation.FROM_ZERO,
    "graph": Normalisation.FROM_ZERO,
}


def _semantic(parts: PresetParts, legs: _Legs, options: Mapping[str, object]) -> list[object]:
    by_llm = _flag(options, "intent_by_llm")
    if by_llm and parts.llm is None:
        raise ConfigurationError("intent_by_llm needs the part 'llm': PresetParts(llm=...)")
    return [
        legs["vector"],
        _intent(parts.llm if by_llm else None),
        parts.rerank() >> BestPart(),
        MMR(_number(options, "lambda_param"), embed_model=parts.embed_model),
    ]


# Exact questions are reranked by terms, definitions by titles; others keep the vector order.
_INTENTS: Final = {
    "exact": IntentProfile(
        "an exact term, phrase, code or name",
        refine=(RuleRerank(RuleWeights(terms=2.0, phrase=1.0)),),
    ),
    "definition": IntentProfile(
        "what something is", refine=(RuleRerank(RuleWeights(place=2.0, title=1.0)),)
    ),
    "general": IntentProfile("any other question"),
}


def _intent(llm: LLM | None) -> IntentAdaptive:
    """Return the stage for the kind of question; without an LLM, by the default rules."""
    selector = None if llm is None else CascadeSelector(rules_for(_INTENTS), LLMSelector(llm))
    return IntentAdaptive(_INTENTS, selector=selector)


_STAGES: Final[Mapping[str, Callable[[PresetParts, _Legs, Mapping[str, object]], list[object]]]] = (
    MappingProxyType({"basic": _basic, "advanced": _advanced, "semantic": _semantic})
)


def _chosen(name: str, parts: PresetParts) -> tuple[str, str]:
    """Return the preset of a name, and its description."""
    if name not in list(PRESETS):
        near = nearest(str(name), PRESETS)
        advice = f"did you mean {near!r}? " if near else ""
        raise ConfigurationError(f"there is no preset {name!r}; {advice}There are {_listed()}")
    if name != AUTO:
        return name, ""
    if parts.graph is not None:
        return "advanced", f"{AUTO} chose 'advanced': there is a graph"
    return "basic", f"{AUTO} chose 'basic': there is no graph"


def _listed() -> str:
    return ", ".join(map(repr, PRESETS))


def _check_options(name: str, options: Mapping[str, object]) -> None:
    known = PRESETS[name].options
    for option in options:
        if option in known:
            continue
        near = nearest(option, known)
        advice = f"Did you mean {near!r}? " if near else ""
        others = [other for other, preset in PRESETS.items() if option in preset.options]
        elsewhere = f"; it is one of {', '.join(map(repr, others))}" if others else ""
        raise ConfigurationError(
            f"{option!r} is no option of the preset {name!r}{elsewhere}. {advice}"
            f"Its options are {', '.join(known) or 'none'}"
        )


def _check_graph_options(parts: PresetParts, options: Mapping[str, object]) -> None:
    of_graph = [key for key in ("graph_weight", "enable_multi_hop", "max_hops") if key in options]
    if of_graph and parts.graph is None:
        raise ConfigurationError(
            f"{' and '.join(of_graph)} have no effect without the part 'graph', which is missing"
        )


def _check_parts(name: str, parts: PresetParts) -> None:
    missing = PRESETS[name].missing(parts)
    if missing:
        raise ConfigurationError(
            f"the preset {name!r} needs {' and '.join(missing)}, which is missing; there is "
            f"{', '.join(parts.present) or 'nothing'}. The presets are {_listed()}"
        )


def _deep(part: BaseRetriever | None, depth: int) -> BaseRetriever | None:
    """Return the part, or a copy that returns at least ``depth`` hits."""
    if not isinstance(part, Retriever) or part.top_k is None or part.top_k >= depth:
        return part
    deeper = copy.copy(part)
    deeper.top_k = depth
    return deeper


def _with_hops(graph: BaseRetriever | None, options: Mapping[str, object]) -> BaseRetriever | None:
    """Return the graph retriever with the hop options."""
    hops = {name: options[name] for name in ("enable_multi_hop", "max_hops") if name in options}
    if not hops or graph is None:
        return graph
    if not isinstance(graph, GraphRetriever):
        raise ConfigurationError(
            f"{' and '.join(hops)} set up a GraphRetriever; the part 'graph' is {graph!r}, which "
            "is set up where it is made"
        )
    return graph.by_entities(**hops)  # type: ignore[arg-type]  # it checks them


def _number(options: Mapping[str, object], name: str) -> float:
    value = options[name]
    if not is_number(value) or not isinstance(value, int | float) or value < 0:
        raise ConfigurationError(f"{name} must be a number of at least 0, got {value!r}")
    return float(value)


def _flag(options: Mapping[str, object], name: str) -> bool:
    return of_type(options[name], bool, name) is True
