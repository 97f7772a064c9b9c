"""What ``>>`` and ``|`` mean between the kinds of stage: what fits, and what to write instead."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_retrieval_ext.errors import CompositionError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.stages.algebra.advice import grouped, instead, side, written
from llama_retrieval_ext.stages.algebra.branches import Branches, Unfused, unique_legs
from llama_retrieval_ext.stages.algebra.chains import FanOutChain, RefineChain, RewriteChain
from llama_retrieval_ext.stages.algebra.function_stage import FunctionStage, is_function
from llama_retrieval_ext.stages.algebra.fused import Fused
from llama_retrieval_ext.stages.algebra.fusion import Fusion, FusionChain
from llama_retrieval_ext.stages.algebra.pipeline import Pipeline
from llama_retrieval_ext.stages.algebra.refine import Refine, RefineFunction
from llama_retrieval_ext.stages.algebra.rewrite import FanOut, Rewrite
from llama_retrieval_ext.stages.reranking.postprocessed import Postprocessed

# In the order in which they are looked for.
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
    """What ``left >> right`` is; ``NotImplemented`` where one is no stage at all.

    Raises:
        CompositionError: Both are stages, but not in this order; the message holds the right one.
    """
    kinds = _kind(left), _kind(right)
    if None in kinds:
        _refuse_class(left, right)
        return NotImplemented
    if is_function(left) and kinds[1] != "refine":
        raise CompositionError(
            f"a function stands for a refinement, behind a retriever: retriever >> "
            f"{written(left)}; to change the query write a Rewrite, to find hits a Retriever"
        )
    build = _THEN.get(kinds)  # type: ignore[arg-type]  # None was ruled out
    if build is None:
        raise CompositionError(
            f"a {kinds[1]} cannot follow a {kinds[0]}: {written(left)} >> {written(right)}; "
            + instead(kinds, left, right)
        )
    return build(left, right)


def beside(left: object, right: object) -> Branches:
    """What ``left | right`` is; ``NotImplemented`` where one is no stage at all.

    Raises:
        CompositionError: One of them is no retriever.
    """
    kinds = _kind(left), _kind(right)
    if None in kinds:
        return NotImplemented  # type: ignore[no-any-return]  # Python's own protocol
    if not _SIDES.issuperset(kinds):
        follows = f"one follows the other: {written(left)} >> {grouped(right)}"
        raise CompositionError(
            f"only retrievers stand side by side, got {written(left)} | {written(right)}; "
            + (follows if kinds in _THEN else instead(kinds, left, right))
        )
    for part in (left, right):
        if isinstance(part, Branches) and (part.rewrites or part.fan_out is not None):
            raise CompositionError(
                f"{part!r} still needs a fusion before anything stands beside it: "
                f"({side(left)}) | ({side(right)})"
            )
    legs = unique_legs([*_legs(left), *_legs(right)])
    return Branches(legs, min_success=_min_success(left, right))


def is_stage(part: object) -> bool:
    """Whether it is of a kind that ``>>`` or ``|`` takes."""
    return _kind(part) is not None


def _kind(part: object) -> str | None:
    found = (kind for kind, types in _KINDS.items() if isinstance(part, types))
    return next(found, "refine" if is_function(part) else None)


def _refuse_class(*parts: object) -> None:
    """Raise if one of the parts is a stage's class instead of a stage."""
    every = tuple(each for kinds in _KINDS.values() for each in kinds)
    for part in parts:
        if isinstance(part, type) and issubclass(part, every):
            raise CompositionError(
                f"{part.__name__} is a class; a pipeline is made of instances: "
                f"write {part.__name__}(...)"
            )


def _legs(part: Any) -> list[BaseRetriever | Leg]:  # noqa: ANN401 - retriever or branches
    return list(part.legs) if isinstance(part, Branches) else [part]


def _min_success(*parts: object) -> int | None:
    """What the parts say on how many legs must answer."""
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
    """The stage as it is; a LlamaIndex postprocessor or a plain function as one."""
    if isinstance(stage, Refine):
        return stage
    return (
        Postprocessed(stage) if isinstance(stage, BaseNodePostprocessor) else FunctionStage(stage)
    )


# What is more than its stages stays whole: taken apart, it would lose its limit, filter or scope.
def _is_flat(source: BaseRetriever) -> TypeGuard[Pipeline]:
    return type(source) is Pipeline and source.is_plain


def _is_flat_fusion(source: BaseRetriever) -> TypeGuard[Fused]:
    return type(source) is Fused and source.is_plain


def _rewrite_retriever(rewrite: Rewrite, source: BaseRetriever) -> Fused | Pipeline:
    if _is_flat_fusion(source):
        return Fused(_rewrite_branches(rewrite, source.branches), source.fusion)
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
    made = _branches(legs)
    if made.fan_out is not None:
        raise CompositionError(
            f"{made!r} fans out already; fuse it first: {stage!r} >> ({made!r} >> RRF())"
        )
    if made.rewrites:
        right = " >> ".join(map(repr, (*made.rewrites, stage, Branches(made.legs))))
        raise CompositionError(f"rewrites come before the fan-out {stage!r}: {right}")
    if isinstance(stage, FanOutChain):
        return replace(made, rewrites=stage.rewrites, fan_out=stage.fan)
    return replace(made, fan_out=stage)


def _branches_fusion(legs: Branches, fusion: Fusion | FusionChain) -> Fused | Pipeline:
    if isinstance(fusion, FusionChain):
        return Pipeline(Fused(legs, fusion.fusion), refines=fusion.refines)
    return Fused(legs, fusion)


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
