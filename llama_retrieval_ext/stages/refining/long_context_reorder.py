"""The order in which a language model best reads the hits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit
from llama_retrieval_ext.stages.algebra.refine import Refine


@dataclass(frozen=True, slots=True)
class LongContextReorder(Refine):
    """The best hits at both ends and the weakest in the middle, where models overlook them.

    Ranks 1, 3, 5, ... come first, then ..., 6, 4, 2. This is the one stage that leaves the order of
    a ranking: scores stay as they are and so no longer fall from hit to hit. Put it last. When the
    query says how many hits it wants, they are the best ones: the cut is made here, before the
    order is changed.

    Source:
        Liu et al., "Lost in the Middle: How Language Models Use Long Contexts", TACL 2024,
        https://doi.org/10.1162/tacl_a_00638, which shows the effect and proposes no order; this one
        is ours. LlamaIndex's and LangChain's stages of the name begin with rank 2 when the number
        of hits is even.

    Examples:
        >>> LongContextReorder()
        LongContextReorder()

    """

    fast: ClassVar[bool] = True

    @property
    def keeps_order(self) -> bool:
        """It does not."""
        return False

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Return the same hits in that order."""
        wanted = hits[: query.top_k]
        return [*wanted[::2], *reversed(wanted[1::2])]
