"""What ``>>`` and ``|`` mean between the kinds of stage: what fits, and what to write instead."""

from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_retrieval_ext.errors import CompositionError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.stages.branches import Branches, unique_legs
from llama_retrieval_ext.stages.chains import FanOutChain, RefineChain, RewriteChain
from llama_retrieval_ext.stages.fused import Fused
from llama_retrieval_ext.stages.fusion import Fusion, FusionChain
from llama_retrieval_ext.stages.pipeline import Pipeline
from llama_retrieval_ext.stages.postprocessed import Postprocessed
from llama_retrieval_ext.stages.refine import Refine
from llama_retrieval_ext.stages.rewrite import FanOut, Rewrite

# In the order in which they are looked for.
_KINDS: Mapping[str, tuple[type, ...]] = {
    "rewrite": (Rewrite,),
    "fan-out": (FanOut,),
    "retriever": (BaseRetriever, Leg),
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
        return NotImplemented
    build = _THEN.get(kinds)  # type: ignore[arg-type]  # None was ruled out
    if build is None:
        advice = _INSTEAD.get(kinds, _ANY_ORDER)  # type: ignore[arg-type]  # None was ruled out
        raise CompositionError(
            f"a {kinds[1]} cannot follow a {kinds[0]}: {left!r} >> {right!r}; "
            + advice.format(left=repr(left), right=repr(right))
        )
    return build(left, right)


def beside(left: object, right: object) -> Branches:
    """What ``left | right`` is.

    Raises:
        CompositionError: One of them is no retriever.
    """
    for part in (left, right):
        if _kind(part) not in {"retriever", "branches"}:
            raise CompositionError(
                f"only retrievers stand side by side, got {left!r} | {right!r}; "
                "put what follows behind a fusion: (a | b) >> RRF() >> ..."
            )
    for part in (left, right):
        if isinstance(part, Branches) and (part.rewrites or part.fan_out is not None):
            raise CompositionError(
                f"{part!r} still needs a fusion before anything stands beside it; write "
                f"({part!r} >> RRF()) | ..."
            )
    return Branches(unique_legs([*_legs(left), *_legs(right)]))


def _kind(part: object) -> str | None:
    found = (kind for kind, types in _KINDS.items() if isinstance(part, types))
    return next(found, None)


def _legs(part: Any) -> list[BaseRetriever | Leg]:  # noqa: ANN401 - retriever or branches
    return list(part.legs) if isinstance(part, Branches) else [part]


def _branches(part: Any) -> Branches:  # noqa: ANN401 - retriever or branches
    return part if isinstance(part, Branches) else Branches(unique_legs([part]))


def _rewrites(stage: Rewrite) -> tuple[Rewrite, ...]:
    return stage.stages if isinstance(stage, RewriteChain) else (stage,)


def _refines(stage: Refine | BaseNodePostprocessor) -> tuple[Refine, ...]:
    if isinstance(stage, BaseNodePostprocessor):
        return (Postprocessed(stage),)
    return stage.stages if isinstance(stage, RefineChain) else (stage,)


def _rewrite_retriever(rewrite: Rewrite, retriever: Any) -> Pipeline:  # noqa: ANN401
    source = retriever.retriever if isinstance(retriever, Leg) else retriever
    if type(source) is Pipeline:
        before = (*_rewrites(rewrite), *source.rewrites)
        return Pipeline(source.source, rewrites=before, refines=source.refines)
    return Pipeline(source, rewrites=_rewrites(rewrite))


def _retriever_refine(retriever: Any, refine: Refine) -> Pipeline:  # noqa: ANN401
    source = retriever.retriever if isinstance(retriever, Leg) else retriever
    if type(source) is Pipeline:
        behind = (*source.refines, *_refines(refine))
        return Pipeline(source.source, rewrites=source.rewrites, refines=behind)
    return Pipeline(source, refines=_refines(refine))


def _rewrite_branches(rewrite: Rewrite, legs: Branches) -> Branches:
    return Branches(legs.legs, (*_rewrites(rewrite), *legs.rewrites), legs.fan_out)


def _fan_out(stage: FanOut, legs: object) -> Branches:
    made = _branches(legs)
    if made.fan_out is not None:
        raise CompositionError(f"{made!r} fans out already; fuse it before another fan-out")
    if made.rewrites:
        raise CompositionError(f"put the rewrites of {made!r} before the fan-out {stage!r}")
    if isinstance(stage, FanOutChain):
        return Branches(made.legs, stage.rewrites, stage.fan)
    return Branches(made.legs, (), stage)


def _branches_fusion(legs: Branches, fusion: Fusion | FusionChain) -> Fused | Pipeline:
    if isinstance(fusion, FusionChain):
        return Pipeline(Fused(legs, fusion.fusion), refines=fusion.refines)
    return Fused(legs, fusion)


def _fusion_refine(fusion: Fusion | FusionChain, refine: Refine) -> FusionChain:
    if isinstance(fusion, FusionChain):
        return FusionChain(fusion.fusion, (*fusion.refines, *_refines(refine)))
    return FusionChain(fusion, _refines(refine))


_THEN: Mapping[tuple[str, str], Callable[[Any, Any], object]] = {
    ("rewrite", "rewrite"): lambda a, b: RewriteChain((*_rewrites(a), *_rewrites(b))),
    ("rewrite", "fan-out"): lambda a, b: FanOutChain.of(_rewrites(a), b),
    ("rewrite", "retriever"): _rewrite_retriever,
    ("rewrite", "branches"): _rewrite_branches,
    ("fan-out", "retriever"): _fan_out,
    ("fan-out", "branches"): _fan_out,
    ("retriever", "refine"): _retriever_refine,
    ("branches", "fusion"): _branches_fusion,
    ("fusion", "refine"): _fusion_refine,
    ("refine", "refine"): lambda a, b: RefineChain((*_refines(a), *_refines(b))),
}

_ANY_ORDER = (
    "the order is: rewrites >> (a | b) >> fusion >> refinements, or rewrites >> a >> refinements"
)
_INSTEAD: Mapping[tuple[str, str], str] = {
    ("branches", "refine"): "put a Fusion between them: {left} >> RRF() >> {right}",
    ("branches", "retriever"): "put retrievers side by side: {left} | {right}",
    ("retriever", "retriever"): "put retrievers side by side: ({left} | {right}) >> RRF()",
    ("retriever", "fusion"): "a fusion needs several rankings: ({left} | other) >> {right}",
    ("retriever", "rewrite"): "a rewrite stands before the retriever: {right} >> {left}",
    ("refine", "retriever"): "a refinement stands behind the retriever: {right} >> {left}",
    ("refine", "fusion"): "a refinement stands behind the fusion: ... >> {right} >> {left}",
    ("fan-out", "refine"): "a fan-out needs a retriever: {left} >> retriever >> RRF() >> {right}",
    ("fan-out", "fusion"): "a fan-out needs a retriever: {left} >> retriever >> {right}",
    ("rewrite", "refine"): "a retriever stands between them: {left} >> retriever >> {right}",
    ("rewrite", "fusion"): "retrievers stand between them: {left} >> (a | b) >> {right}",
}
