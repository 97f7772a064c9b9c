"""`Refine`: the kind of stage that makes a better ranking of a ranking."""

from abc import ABC
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias, overload

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.execution.steps import call
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit
from llama_retrieval_ext.stages.algebra.operand import Operand, undefined
from llama_retrieval_ext.stages.algebra.values import ranking_of

if TYPE_CHECKING:
    from llama_retrieval_ext.stages.algebra.pipeline import Pipeline

RefineFunction: TypeAlias = (
    Callable[[Query, list[Hit]], Sequence[NodeWithScore]]
    | Callable[[list[Hit]], Sequence[NodeWithScore]]
)


class Refine(Operand, ABC):
    """Makes a ranking of a ranking: ``retriever >> refine``. It never invents ids.

    A subclass defines `refine`, a plain function of the query and the hits. The pipeline checks
    what it returns: hits that were in the ranking, each once, with finite scores. A hit returned
    without a score keeps the one it had. Where the hits are rearranged but not rescored, their
    scores are raised to fit the order; where they are rescored but not rearranged, they are sorted.

    A stage that waits for something (a model, a store, a service) defines `refine_plan` instead, a
    generator that yields its calls, so that sync and async callers share one implementation.

    Attributes:
        fast: Whether `refine` takes no time worth mentioning. An async caller runs it on the event
            loop then, and in a thread otherwise.

    Examples:
        >>> from llama_retrieval_ext.testing.fake_retrievers import FakeRetriever
        >>> class WithQuery(Refine):
        ...     def refine(self, query, hits):
        ...         return [hit for hit in hits if query.query_str in hit.text]
        >>> source = FakeRetriever([("a", 0.9, "annual leave"), ("b", 0.8, "travel")])
        >>> [hit.node_id for hit in (source >> WithQuery()).retrieve("leave")]
        ['a']

    """

    fast: ClassVar[bool] = False

    @property
    def keeps_order(self) -> bool:
        """Whether the result is best first; no stage can follow one whose result is not."""
        return True

    @property
    def reranks(self) -> bool:
        """Whether it orders all that it gets, so that an empty result means that it failed."""
        return False

    @property
    def adds(self) -> bool:
        """Whether it may return hits that were not in the ranking; ours and users' may not."""
        return False

    def refine(
        self,
        query: Query,  # noqa: ARG002 - subclasses use it
        hits: Sequence[Hit],  # noqa: ARG002 - subclasses use it
    ) -> Sequence[NodeWithScore]:
        """Return the refined ranking, best first; fresh hits where anything changes.

        Args:
            query: The query as the caller asked it, before any rewriting.
            hits: The ranking so far, best first.
        """
        raise undefined(self, Refine, "refine(self, query, hits)")

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[Sequence[NodeWithScore]]:
        """The plan for the refined ranking; by default one call of `refine`."""
        if self.fast:
            return ranking_of(self.refine(query, list(hits)), f"{type(self).__name__}.refine")
        found = yield from call(Call(lambda: self.refine(query, list(hits))))
        return ranking_of(found, f"{type(self).__name__}.refine")

    def __rshift__(self, other: "Refine | BaseNodePostprocessor | RefineFunction") -> "Refine":
        from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - it knows all kinds

        return then(self, other)  # type: ignore[return-value]  # by the table there

    @overload
    def __rrshift__(self, other: BaseRetriever) -> "Pipeline": ...
    @overload
    def __rrshift__(self, other: "BaseNodePostprocessor | RefineFunction") -> "Refine": ...
    def __rrshift__(self, other: object) -> object:
        from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - it knows all kinds

        return then(other, self)
