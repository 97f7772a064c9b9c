"""What to write instead of two parts that do not fit."""

from collections.abc import Mapping

from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.stages.algebra.branches import Branches
from llama_retrieval_ext.stages.algebra.shape import expression

# The advice ends with an expression. ``retriever``, ``other``, ``a`` and ``b`` stand for retrievers
# that only the reader knows.
_INSTEAD: Mapping[tuple[str | None, str | None], str] = {
    ("rewrite", "fusion"): "retrievers stand between them: {left} >> (a | b) >> {right}",
    ("rewrite", "refine"): "a retriever stands between them: {left} >> retriever >> {right}",
    ("rewrite", "leg"): "a rewrite stands inside a leg: Leg({name}, {left} >> {inside})",
    ("fan-out", "rewrite"): "a rewrite stands before the fan-out: {right} >> {left}",
    ("fan-out", "fan-out"): "fuse between them: {left} >> ({right} >> retriever >> RRF()) >> RRF()",
    ("fan-out", "fusion"): "a fan-out needs a retriever: {left} >> retriever >> {right}",
    ("fan-out", "refine"): "a fan-out needs a retriever: {left} >> retriever >> RRF() >> {right}",
    ("retriever", "rewrite"): "a rewrite stands before the retriever: {right} >> {left}",
    ("retriever", "fan-out"): "a fan-out stands before it: {right} >> {left_grouped} >> RRF()",
    ("retriever", "fusion"): "a fusion needs several rankings: ({left} | other) >> {right}",
    ("leg", "rewrite"): "a rewrite stands inside a leg: Leg({name}, {right} >> {inside})",
    ("leg", "fan-out"): "a fan-out stands before the leg: {right} >> {left} >> RRF()",
    ("leg", "fusion"): "a fusion needs several rankings: ({left} | other) >> {right}",
    ("leg", "refine"): "a refinement stands inside a leg: Leg({name}, {inside} >> {right})",
    ("branches", "rewrite"): "a rewrite stands before the retrievers: {right} >> {left} >> RRF()",
    ("branches", "fan-out"): "fuse before the fan-out: {right} >> ({left} >> RRF()) >> RRF()",
    ("branches", "refine"): "put a Fusion between them: {left} >> RRF() >> {right}",
    ("fusion", "rewrite"): "a fusion stands behind the retrievers: {right} >> (a | b) >> {left}",
    ("fusion", "fan-out"): "a fusion stands behind the retriever: {right} >> retriever >> {left}",
    ("fusion", "retriever"): "a fusion stands behind what it fuses: ({right} | other) >> {left}",
    ("fusion", "leg"): "a fusion stands behind what it fuses: ({right} | other) >> {left}",
    ("fusion", "branches"): "a fusion stands behind what it fuses: {right} >> {left}",
    ("fusion", "fusion"): "one fusion is enough: {left}",
    ("refine", "rewrite"): "a retriever stands between them: {right} >> retriever >> {left}",
    ("refine", "fan-out"): "a refinement comes last: {right} >> retriever >> RRF() >> {left}",
    ("refine", "retriever"): "a refinement stands behind the retriever: {right} >> {left}",
    ("refine", "leg"): "a refinement stands inside a leg: Leg({name}, {inside} >> {left})",
    ("refine", "branches"): "a refinement stands behind the fusion: {right} >> RRF() >> {left}",
    ("refine", "fusion"): "a refinement stands behind the fusion: {right} >> {left}",
}
# Two that are, or wait to be, retrievers.
_SIDE_BY_SIDE = "put retrievers side by side, and fuse them: ({left_side} | {right_side}) >> RRF()"


def instead(kinds: tuple[str | None, str | None], left: object, right: object) -> str:
    """What to write instead of ``left >> right`` or ``left | right``, in words and as code.

    Args:
        kinds: What the two are.
        left: The part before the operator.
        right: The part behind it.
    """
    leg = left if isinstance(left, Leg) else right
    name, inside = (repr(leg.name), leg.retriever) if isinstance(leg, Leg) else ("", leg)
    return _INSTEAD.get(kinds, _SIDE_BY_SIDE).format(
        left=written(left),
        right=written(right),
        left_grouped=grouped(left),
        left_side=side(left),
        right_side=side(right),
        name=name,
        inside=expression(inside),
    )


def written(part: object) -> str:
    """The part as it is written in a pipeline; of a leg, only its name and retriever."""
    if isinstance(part, Leg):
        return f"Leg({part.name!r}, {expression(part.retriever)})"
    return expression(part)


def grouped(part: object) -> str:
    """The part as it is written behind a ``>>``."""
    text = side(part)
    return f"({text})" if " >> " in text else text


def side(part: object) -> str:
    """The part as it is written beside another."""
    if isinstance(part, Branches) and (part.rewrites or part.fan_out is not None):
        return f"{part!r} >> RRF()"
    return written(part)
