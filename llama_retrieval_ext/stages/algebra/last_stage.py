"""What stands behind a stage that leaves the best-first order: nothing."""

from collections.abc import Sequence
from itertools import pairwise

from llama_retrieval_ext.errors import CompositionError
from llama_retrieval_ext.stages.algebra.refine import Refine


def check_last(refines: Sequence[Refine]) -> None:
    """Nothing, if each stage gets a ranking that is best first.

    Args:
        refines: Stages, one behind the other.

    Raises:
        CompositionError: A stage stands behind one that leaves that order.
    """
    for before, behind in pairwise(refines):
        if before.keeps_order:
            continue
        if before == behind:
            raise CompositionError(f"{before!r} undoes itself; write {before!r} once")
        rest = [stage for stage in refines if stage.keeps_order]
        raise CompositionError(
            f"{behind!r} needs hits that are best first, which {before!r} leaves; put it last: "
            + " >> ".join(map(repr, [*rest, before]))
        )
