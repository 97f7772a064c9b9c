"""``>>`` and ``|`` between the kinds of stage: valid combinations and error messages."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeGuard

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseComponent, NodeWithScore

from llama_retrieval_ext.arguments import function_name
from llama_retrieval_ext.arguments import value_expression as written
from llama_retrieval_ext.errors import CompositionError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.pipeline.branches import Branches, Unfused, unique_legs
from llama_retrieval_ext.pipeline.chains import FanOutChain, RefineChain, RewriteChain
from llama_retrieval_ext.pipeline.fusion import Fusion, FusionChain
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.postprocessor import Postprocessed
from llama_retrieval_ext.pipeline.stages import FanOut, Refine, RefineFunction, Rewrite
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit

# In the order of the checks.
_KINDS: Mapping[str, tuple[type, ...]] = {
    "rewrite": (Rewrite,),
    "fan-out": (FanOut,),
    "retriever": (BaseRetriever,),
    "leg": (Leg,),
    "branches": (Branches,),
    "fusion": (Fusion, FusionChain),
    "refine": (Refine, BaseNodePostprocessor),
}


def then(left: object, right: object) -> object:
    """Return ``left >> right``; ``NotImplemented`` if one is not a stage."""
    kinds = _kind(left), _kind(right)
    if None in kinds:
        _refuse_class(left, right)
        return NotImplemented
    if is_function(left) and kinds[1] != "refine":
        raise CompositionError(
            f"a function is a refinement, which follows a retriever: retriever >> "
            f"{written(left)}; to change the query write a Rewrite, to find hits a Retriever"
        )
    build = _THEN.get(kinds)  # type: ignore[arg-type]  # None was ruled out
    if build is None:
        raise CompositionError(
            f"{_named(kinds[1])} cannot directly follow {_named(kinds[0])}: "
            f"{written(left)} >> {written(right)}; " + instead(kinds, left, right)
        )
    return build(left, right)


def _named(kind: str | None) -> str:
    return {"branches": "parallel retrievers", "refine": "a refinement"}.get(f"{kind}", f"a {kind}")


def beside(left: object, right: object) -> Branches:
    """Return ``left | right``; ``NotImplemented`` if one is not a stage."""
    kinds = _kind(left), _kind(right)
    if None in kinds:
        return NotImplemented  # type: ignore[no-any-return]  # Python's own protocol
    if not _SIDES.issuperset(kinds):
        follows = f"one follows the other: {written(left)} >> {grouped(right)}"
        raise CompositionError(
            f"only retrievers can be combined by |, got {written(left)} | {written(right)}; "
            + (follows if kinds in _THEN else instead(kinds, left, right))
        )
    for part in (left, right):
        if isinstance(part, Branches) and (part.rewrites or part.fan_out is not None):
            raise CompositionError(
                f"{part!r} still needs a fusion before it can be combined by |: "
                f"({side(left)}) | ({side(right)})"
            )
    legs = unique_legs([*_legs(left), *_legs(right)])
    return Branches(legs, min_success=_min_success(left, right))


def is_stage(part: object) -> bool:
    """Return whether a part is of a kind that ``>>`` or ``|`` accepts."""
    return _kind(part) is not None


def _kind(part: object) -> str | None:
    kinds = (kind for kind, types in _KINDS.items() if isinstance(part, types))
    return next(kinds, "refine" if is_function(part) else None)


def _refuse_class(*parts: object) -> None:
    """Raise if a part is a stage's class instead of an instance."""
    every = tuple(kind for kinds in _KINDS.values() for kind in kinds)
    for part in parts:
        if isinstance(part, type) and issubclass(part, every):
            raise CompositionError(
                f"{part.__name__} is a class; a pipeline is made of instances: "
                f"write {part.__name__}(...)"
            )


def _legs(part: Any) -> list[BaseRetriever | Leg]:  # noqa: ANN401 - retriever or branches
    return list(part.legs) if isinstance(part, Branches) else [part]


def _min_success(*parts: object) -> int | None:
    """Return the ``min_success`` of the parts."""
    said = [part.min_success for part in parts if isinstance(part, Branches)]
    counts = {count for count in said if count is not None}
    if len(counts) > 1:
        raise CompositionError(
            f"min_success is {' here and '.join(map(str, said))} there; write it once, in the "
            "fusion behind them: (a | b | c) >> RRF(min_success=2)"
        )
    return next(iter(counts), None)


def _branches(part: Any) -> Branches:  # noqa: ANN401 - retriever or branches
    return part if isinstance(part, Branches) else Branches(unique_legs([part]))


def _rewrites(stage: Rewrite) -> tuple[Rewrite, ...]:
    return stage.stages if isinstance(stage, RewriteChain) else (stage,)


def _refines(stage: Refine | BaseNodePostprocessor | RefineFunction) -> tuple[Refine, ...]:
    if isinstance(stage, RefineChain):
        return stage.stages
    return (as_refine(stage),)


def as_refine(stage: Refine | BaseNodePostprocessor | RefineFunction) -> Refine:
    """Return the stage; wrap a LlamaIndex postprocessor or a plain function."""
    if isinstance(stage, Refine):
        return stage
    return (
        Postprocessed(stage) if isinstance(stage, BaseNodePostprocessor) else FunctionStage(stage)
    )


# A pipeline with a limit, filter, scope or name is not flattened: it would lose them.
def _is_flat(source: BaseRetriever) -> TypeGuard[Pipeline]:
    return type(source) is Pipeline and source.is_plain


def _is_flat_fusion(source: BaseRetriever) -> TypeGuard[FusionRetriever]:
    return type(source) is FusionRetriever and source.is_plain


def _rewrite_retriever(rewrite: Rewrite, source: BaseRetriever) -> FusionRetriever | Pipeline:
    if _is_flat_fusion(source):
        return FusionRetriever(_rewrite_branches(rewrite, source.branches), source.fusion)
    if not _is_flat(source):
        return Pipeline(source, rewrites=_rewrites(rewrite))
    if _is_flat_fusion(source.source) and not source.rewrites:
        return Pipeline(_rewrite_retriever(rewrite, source.source), refines=source.refines)
    before = (*_rewrites(rewrite), *source.rewrites)
    return Pipeline(source.source, rewrites=before, refines=source.refines)


def _retriever_refine(source: BaseRetriever, refine: Refine) -> Pipeline:
    if _is_flat(source):
        behind = (*source.refines, *_refines(refine))
        return Pipeline(source.source, rewrites=source.rewrites, refines=behind)
    return Pipeline(source, refines=_refines(refine))


def _rewrite_branches(rewrite: Rewrite, legs: Unfused) -> Branches:
    before = (*_rewrites(rewrite), *legs.rewrites)
    return Branches(legs.legs, before, legs.fan_out, legs.min_success)


def _fan_out(stage: FanOut, legs: object) -> Branches:
    branches = _branches(legs)
    if branches.fan_out is not None:
        raise CompositionError(
            f"{branches!r} fans out already; fuse it first: {stage!r} >> ({branches!r} >> RRF())"
        )
    if branches.rewrites:
        right = " >> ".join(map(repr, (*branches.rewrites, stage, Branches(branches.legs))))
        raise CompositionError(f"rewrites come before the fan-out {stage!r}: {right}")
    if isinstance(stage, FanOutChain):
        return replace(branches, rewrites=stage.rewrites, fan_out=stage.fan)
    return replace(branches, fan_out=stage)


def _branches_fusion(legs: Branches, fusion: Fusion | FusionChain) -> FusionRetriever | Pipeline:
    if isinstance(fusion, FusionChain):
        return Pipeline(FusionRetriever(legs, fusion.fusion), refines=fusion.refines)
    return FusionRetriever(legs, fusion)


def _fusion_refine(fusion: Fusion | FusionChain, refine: Refine) -> FusionChain:
    if isinstance(fusion, FusionChain):
        return FusionChain(fusion.fusion, (*fusion.refines, *_refines(refine)))
    return FusionChain(fusion, _refines(refine))


_SIDES = frozenset({"retriever", "leg", "branches"})
_THEN: Mapping[tuple[str, str], Callable[[Any, Any], object]] = {
    ("rewrite", "rewrite"): lambda a, b: RewriteChain((*_rewrites(a), *_rewrites(b))),
    ("rewrite", "fan-out"): lambda a, b: FanOutChain.of(_rewrites(a), b),
    ("rewrite", "retriever"): _rewrite_retriever,
    ("rewrite", "branches"): _rewrite_branches,
    ("fan-out", "retriever"): _fan_out,
    ("fan-out", "leg"): _fan_out,
    ("fan-out", "branches"): _fan_out,
    ("retriever", "refine"): _retriever_refine,
    ("branches", "fusion"): _branches_fusion,
    ("fusion", "refine"): _fusion_refine,
    ("refine", "refine"): lambda a, b: RefineChain((*_refines(a), *_refines(b))),
}


# Two parts that follow each other in no order, and two retrievers, or parts that become retrievers.
_TWICE: Mapping[tuple[str | None, str | None], str] = {
    ("fan-out", "fan-out"): "fuse between them: {left} >> ({right} >> retriever >> RRF()) >> RRF()",
    ("fusion", "fusion"): "one fusion is enough: {left}",
}
_ORDER = "the order is rewrites, a fan-out, retrievers, a fusion, refinements"
_SIDE_BY_SIDE = "put retrievers side by side, and fuse them: ({left_side} | {right_side}) >> RRF()"


def instead(kinds: tuple[str | None, str | None], left: object, right: object) -> str:
    """Return the correction for ``left >> right`` or ``left | right``, in words and code.

    The code at its end has the placeholders ``retriever``, ``other``, ``a`` and ``b``.
    """
    if kinds in _TWICE or _SIDES.issuperset(kinds):
        return _TWICE.get(kinds, _SIDE_BY_SIDE).format(
            left=written(left), right=written(right), left_side=side(left), right_side=side(right)
        )
    given = dict(zip(kinds, (left, right), strict=True))
    parts = {kind: given[kind] for kind in _KINDS if kind in given}
    leg = parts.get("leg")
    if isinstance(leg, Leg) and parts.keys() & {"rewrite", "refine"}:
        inside = [written(leg.retriever if part is leg else part) for part in parts.values()]
        return f"a stage of a leg stands inside it: Leg({leg.name!r}, {' >> '.join(inside)})"
    advice = {
        ("branches", "refine"): "put a Fusion between them",
        ("retriever", "fusion"): "a fusion needs several rankings",
    }.get((kinds[0] or "", kinds[1] or ""), _ORDER)
    return f"{advice}: {' >> '.join(_in_order(parts))}"


def _in_order(parts: Mapping[str, object]) -> list[str]:
    """Return the expressions of two parts of a pipeline, in order, with what is missing."""
    source = next((part for kind, part in parts.items() if kind in _SIDES), None)
    is_fanned_out = "fan-out" in parts
    has_several = is_fanned_out or isinstance(source, Branches)
    text = "retriever" if source is None else written(source)
    if is_fanned_out and source is not None:
        text = grouped(source)
    elif "fusion" in parts and not has_several:
        text = "(a | b)" if source is None else f"({text} | other)"
    before = [written(part) for kind, part in parts.items() if kind in {"rewrite", "fan-out"}]
    fusion = [written(parts["fusion"])] if "fusion" in parts else ["RRF()"] * has_several
    after = [written(parts["refine"])] if "refine" in parts else []
    return [*before, text, *fusion, *after]


def grouped(part: object) -> str:
    """Return the expression of a part after ``>>``."""
    text = side(part)
    return f"({text})" if " >> " in text else text


def side(part: object) -> str:
    """Return the expression of a part beside ``|``."""
    if isinstance(part, Branches) and (part.rewrites or part.fan_out is not None):
        return f"{part!r} >> RRF()"
    return written(part)


_HITS_ALONE: Final = 1
_QUERY_AND_HITS: Final = 2
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def is_function(part: object) -> TypeGuard[Callable[..., object]]:
    """Return whether a part is a function, and not a class or a callable LlamaIndex component."""
    return callable(part) and not isinstance(part, type | BaseComponent)


@dataclass(frozen=True, slots=True, repr=False)
class FunctionStage(Refine):
    """Refinement by a function of the query and the hits, or of the hits alone."""

    function: Callable[..., Sequence[NodeWithScore]]
    _arguments: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if inspect.iscoroutinefunction(self.function):
            raise CompositionError(
                f"{self!r} is an async function; write it as a plain one, or as a Refine with "
                "refine_plan, which yields its calls"
            )
        object.__setattr__(self, "_arguments", _count_arguments(self.function))

    def refine(self, query: Query, hits: Sequence[Hit]) -> Sequence[NodeWithScore]:
        """Return the result of the function."""
        if self._arguments == _HITS_ALONE:
            return self.function(hits)
        return self.function(query, hits)

    def __repr__(self) -> str:
        return function_name(self.function)


def _count_arguments(function: Callable[..., Any]) -> int:
    """Return the number of arguments to call the function with, 1 or 2."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return _HITS_ALONE
    required = [
        parameter for parameter in parameters if parameter.default is inspect.Parameter.empty
    ]
    positional = [each for each in required if each.kind in _POSITIONAL]
    named = [each.name for each in required if each.kind is inspect.Parameter.KEYWORD_ONLY]
    has_rest = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    if has_rest and not positional:
        return _QUERY_AND_HITS
    if named or len(positional) not in {_HITS_ALONE, _QUERY_AND_HITS}:
        raise CompositionError(
            f"the function {function_name(function)}{inspect.signature(function)} cannot be a "
            "stage; a function behind a retriever takes (query, hits) or (hits)"
        )
    return len(positional)
