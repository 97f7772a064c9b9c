"""The stages that work on the query: `Rewrite`, and `FanOut`, which makes several of it."""

from abc import ABC
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import QueryBundle

from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.execution.steps import call
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.algebra.operand import Operand, undefined
from llama_retrieval_ext.stages.algebra.values import items_of, query_of

if TYPE_CHECKING:
    from llama_retrieval_ext.execution.legs import Leg
    from llama_retrieval_ext.stages.algebra.branches import Branches, Unfused
    from llama_retrieval_ext.stages.algebra.retriever import Retriever


class Rewrite(Operand, ABC):
    """Makes another query of a query: ``rewrite >> retriever``.

    The retriever gets the rewritten query; stages behind it go on with the one that was asked. The
    scope and the filters of the one that was asked hold for both.

    A subclass defines `rewrite`, a plain function of the query. One that waits for something, such
    as a language model, defines `rewrite_plan` instead, a generator that yields its calls.

    Examples:
        >>> from llama_retrieval_ext.testing.fake_retrievers import FakeRetriever
        >>> class Polite(Rewrite):
        ...     def rewrite(self, query):
        ...         return f"{query.query_str}, please"
        >>> source = FakeRetriever()
        >>> (Polite() >> source).retrieve("annual leave")
        []
        >>> source.calls[0].query_str
        'annual leave, please'

    """

    def rewrite(self, query: Query) -> str | QueryBundle:  # noqa: ARG002 - subclasses use it
        """Return the rewritten query: a text, a ``QueryBundle`` or a `Query`.

        Args:
            query: The query so far. What is not in the returned form (its scope and filters, and
                of a text all but the text) stays as it was; an embedding goes with its text.
        """
        raise undefined(self, Rewrite, "rewrite(self, query)")

    def rewrite_plan(self, query: Query) -> Plan[str | QueryBundle]:
        """The plan for the rewritten query; by default one call of `rewrite`."""
        made = yield from call(Call(lambda: self.rewrite(query)))
        return query_of(made, f"{type(self).__name__}.rewrite")

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
    """Makes several queries of one; their rankings need a fusion: ``fan_out >> a >> RRF()``.

    A subclass defines `fan_out`, a plain function of the query. One that waits for something
    defines `fan_out_plan` instead, a generator that yields its calls.
    """

    def fan_out(self, query: Query) -> Sequence[str | QueryBundle]:  # noqa: ARG002 - subclasses use it
        """Return the queries to ask, each in a form that `Rewrite.rewrite` may return.

        Args:
            query: The query so far; it is asked where the result is empty.
        """
        raise undefined(self, FanOut, "fan_out(self, query)")

    def fan_out_plan(self, query: Query) -> Plan[Sequence[str | QueryBundle]]:
        """The plan for the queries to ask; by default one call of `fan_out`."""
        made = yield from call(Call(lambda: self.fan_out(query)))
        function = f"{type(self).__name__}.fan_out"
        forms = items_of(made, object, function, expected="queries (strings or Query)")
        return [query_of(form, function) for form in forms]

    def __rshift__(self, other: "BaseRetriever | Leg | Branches") -> "Unfused":
        from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - it knows all kinds

        return then(self, other)  # type: ignore[return-value]  # by the table there
