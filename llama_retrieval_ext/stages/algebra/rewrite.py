"""The stages that work on the query: `Rewrite`, and `FanOut`, which makes several of it."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, overload

from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.algebra.operand import Operand

if TYPE_CHECKING:
    from llama_retrieval_ext.execution.legs import Leg
    from llama_retrieval_ext.stages.algebra.branches import Branches, Unfused
    from llama_retrieval_ext.stages.algebra.retriever import Retriever


class Rewrite(Operand, ABC):
    """Makes another query of a query: ``rewrite >> retriever``.

    The retriever gets the rewritten query; stages behind it go on with the one that was asked. The
    scope and the filters of the one that was asked hold for both.
    """

    @abstractmethod
    def rewrite(self, query: Query) -> Plan[Query]:
        """The plan for the rewritten query; a copy, with everything but the text as it was."""

    @overload
    def __rshift__(self, other: "Rewrite") -> "Rewrite": ...
    @overload
    def __rshift__(self, other: "FanOut") -> "FanOut": ...
    @overload
    def __rshift__(self, other: BaseRetriever) -> "Retriever": ...
    @overload
    def __rshift__(self, other: "Unfused") -> "Unfused": ...
    def __rshift__(self, other: object) -> object:
        from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - it knows all kinds

        return then(self, other)


class FanOut(Operand, ABC):
    """Makes several queries of one; their rankings need a fusion: ``fan_out >> a >> RRF()``."""

    @abstractmethod
    def fan_out(self, query: Query) -> Plan[list[Query]]:
        """The plan for the queries to ask, at least one; copies that differ in their text."""

    def __rshift__(self, other: "BaseRetriever | Leg | Branches") -> "Unfused":
        from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - it knows all kinds

        return then(self, other)  # type: ignore[return-value]  # by the table there
