"""`Refine`: the kind of stage that makes a better ranking of a ranking."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, overload

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit
from llama_retrieval_ext.stages.algebra.operand import Operand

if TYPE_CHECKING:
    from llama_retrieval_ext.stages.algebra.pipeline import Pipeline


class Refine(Operand, ABC):
    """Makes a ranking of a ranking: ``retriever >> refine``. It never invents ids.

    Attributes:
        keeps_order: Whether what it gives is best first. Nothing stands behind a stage that does
            not: a cut would cut anywhere.
    """

    keeps_order: ClassVar[bool] = True

    @abstractmethod
    def refine(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """The plan for the refined ranking: fresh hits where anything changes, best first."""

    def __rshift__(self, other: "Refine | BaseNodePostprocessor") -> "Refine":
        from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - it knows all kinds

        return then(self, other)  # type: ignore[return-value]  # by the table there

    @overload
    def __rrshift__(self, other: BaseRetriever) -> "Pipeline": ...
    @overload
    def __rrshift__(self, other: BaseNodePostprocessor) -> "Refine": ...
    def __rrshift__(self, other: object) -> object:
        from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - it knows all kinds

        return then(other, self)
