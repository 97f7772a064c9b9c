"""``>>`` and ``|`` between the kinds of stage: valid combinations and error messages."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_retrieval_ext.arguments import value_expression as written
from llama_retrieval_ext.errors import CompositionError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.pipeline.branches import Branches, Unfused, unique_legs
from llama_retrieval_ext.pipeline.chains import FanOutChain, FusionChain, RefineChain, RewriteChain
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.postprocessor import as_refine, is_function
from llama_retrieval_ext.pipeline.stages import FanOut, Refine, Rewrite

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
    first, second = kinds = _kind(left), _kind(right)
    if first is None or second is None:
        _refuse_class(left, right)
        return NotImplemented
    if is_function(left) and second != "refine":
        raise CompositionError(
            f"a function is a refinement, which follows a retriever: retriever >> "
            f"{written(left)}; to change the query write a Rewrite, to find hits a Retriever"
        )
    if second not in _FOLLOWERS[first]:
        names = {"branches": "parallel retrievers", "refine": "a refinement"}
        raise CompositionError(
            f"{names.get(second, f'a {second}')} cannot directly follow "
            f"{names.get(first, f'a {first}')}: {written(left)} >> {written(right)}; "
            + instead(kinds, left, right)
        )
    if first == "fan-out":
        _check_fan_out(left, right)
    return _Parts.of(left).then(_Parts.of(right)).built()


def beside(left: object, right: object) -> Branches:
    """Return ``left | right``; ``NotImplemented`` if one is not a stage."""
    first, second = kinds = _kind(left), _kind(right)
    if first is None or second is None:
        return NotImplemented  # type: ignore[no-any-return]  # Python's own protocol
    if not _SIDES.issuperset(kinds):
        follows = f"one follows the other: {written(left)} >> {grouped(right)}"
        raise CompositionError(
            f"only retrievers can be combined by |, got {written(left)} | {written(right)}; "
            + (follows if second in _FOLLOWERS[first] else instead(kinds, left, right))
        )
    for part in (left, right):
        if isinstance(part, Branches) and (part.rewrites or part.fan_out is not None):
            raise CompositionError(
                f"{part!r} still needs a fusion before it can be combined by |: "
                f"({side(left)}) | ({side(right)})"
            )
    legs: list[BaseRetriever | Leg] = []
    for part in (left, right):
        legs += part.legs if isinstance(part, Branches) else [part]  # type: ignore[list-item]  # a side
    return Branches(unique_legs(legs), min_success=_min_success(left, right))


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


def _min_success(*parts: object) -> int | None:
    """Return the ``min_success`` of the parts."""
    given = [part.min_success for part in parts if isinstance(part, Branches)]
    counts = {count for count in given if count is not None}
    if len(counts) > 1:
        raise CompositionError(
            f"min_success is {' here and '.join(map(str, given))} there; write it once, in the "
            "fusion behind them: (a | b | c) >> RRF(min_success=2)"
        )
    return next(iter(counts), None)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The stages of an expression, in the order in which a query passes them.

    `>>` merges two of these records; every chain, and a retriever without a limit, filter, scope or
    name of its own, is one.
    """

    rewrites: tuple[Rewrite, ...] = ()
    fan_out: FanOut | None = None
    source: BaseRetriever | None = None
    legs: tuple[Leg, ...] = ()
    min_success: int | None = None
    fusion: Fusion | None = None
    refines: tuple[Refine, ...] = ()

    @classmethod
    def of(cls, part: Any) -> "_Parts":  # noqa: ANN401, C901, PLR0911 - a part of any kind
        """Return the stages of a part."""
        match part:
            case RewriteChain() | Unfused() | FusionChain() | RefineChain():
                return cls(**{field.name: getattr(part, field.name) for field in fields(part)})
            case FanOutChain():
                return cls(rewrites=part.rewrites, fan_out=part.fan)
            case Pipeline() if type(part) is Pipeline and part.is_plain:
                return cls(rewrites=part.rewrites, source=part.source, refines=part.refines)
            case BaseRetriever():
                return cls(source=part)
            case Leg():
                return cls(legs=(part,))
            case Rewrite():
                return cls(rewrites=(part,))
            case FanOut():
                return cls(fan_out=part)
            case Fusion():
                return cls(fusion=part)
        return cls(refines=(as_refine(part),))

    def then(self, right: "_Parts") -> "_Parts":
        """Return the stages of both, these first."""
        source = right.source
        if self.fan_out is not None and source is not None:  # it gets several queries
            right = replace(right, source=None, legs=unique_legs([source]))
        elif self.rewrites and type(source) is FusionRetriever and not right.rewrites:
            right = right.opened(source)
        return _Parts(
            self.rewrites + right.rewrites,
            right.fan_out if self.fan_out is None else self.fan_out,
            right.source if self.source is None else self.source,
            self.legs or right.legs,
            right.min_success if self.min_success is None else self.min_success,
            right.fusion if self.fusion is None else self.fusion,
            self.refines + right.refines,
        )

    def opened(self, source: FusionRetriever) -> "_Parts":
        """Return the stages with those of the source, unless it has a limit or name of its own."""
        if not source.is_plain:
            return self
        sides = source.branches
        return _Parts(
            *(sides.rewrites, sides.fan_out, None, sides.legs, sides.min_success),
            source.fusion,
            self.refines,
        )

    def built(self) -> object:  # noqa: PLR0911 - one for each class
        """Return the retriever, branches or chain of the stages."""
        if self.legs:
            sides = Branches(self.legs, self.rewrites, self.fan_out, self.min_success)
            if self.fusion is None:
                return sides
            fused = FusionRetriever(sides, self.fusion)
            return Pipeline(fused, refines=self.refines) if self.refines else fused
        if self.source is not None:
            return Pipeline(self.source, rewrites=self.rewrites, refines=self.refines)
        if self.fusion is not None:
            return FusionChain(self.fusion, self.refines)
        if self.refines:
            return RefineChain(self.refines)
        fan_out, rewrites = self.fan_out, self.rewrites
        return RewriteChain(rewrites) if fan_out is None else FanOutChain(rewrites, fan_out)


def _check_fan_out(fan_out: object, sides: object) -> None:
    """Raise if branches behind a fan-out have a fan-out or rewrites."""
    if not isinstance(sides, Branches):
        return
    if sides.fan_out is not None:
        raise CompositionError(
            f"{sides!r} fans out already; fuse it first: {fan_out!r} >> ({sides!r} >> RRF())"
        )
    if sides.rewrites:
        right = " >> ".join(map(repr, (*sides.rewrites, fan_out, Branches(sides.legs))))
        raise CompositionError(f"rewrites come before the fan-out {fan_out!r}: {right}")


_SIDES = frozenset({"retriever", "leg", "branches"})
# What may stand on the right of each kind.
_FOLLOWERS: Final[Mapping[str, frozenset[str]]] = {
    "rewrite": frozenset({"rewrite", "fan-out", "retriever", "branches"}),
    "fan-out": _SIDES,
    "retriever": frozenset({"refine"}),
    "leg": frozenset(),
    "branches": frozenset({"fusion"}),
    "fusion": frozenset({"refine"}),
    "refine": frozenset({"refine"}),
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
