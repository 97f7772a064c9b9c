"""The kinds of stage `Refine`, `Rewrite` and `FanOut`, and checks of custom stages' results.

LlamaIndex's retrievers and postprocessors do not define ``>>``; the stage on the right handles it.
"""

from abc import ABC
from collections.abc import Callable, Coroutine, Generator, Sequence
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar, overload

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext.checks import Part
from llama_retrieval_ext.errors import CompositionError, ConfigurationError
from llama_retrieval_ext.execution.context import call
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit

if TYPE_CHECKING:
    from llama_retrieval_ext.execution.legs import Leg
    from llama_retrieval_ext.pipeline.branches import Branches, Unfused
    from llama_retrieval_ext.pipeline.pipeline import Pipeline
    from llama_retrieval_ext.pipeline.retriever import Retriever


class Operand(Part):
    """Part of a pipeline, with ``>>`` and ``|``; subclasses declare the accepted types."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __rshift__(self, other: object) -> object:
            return _operators().then(self, other)

        def __rrshift__(self, other: object) -> object:
            return _operators().then(other, self)

        def __or__(self, other: object) -> object:
            return _operators().beside(self, other)

        def __ror__(self, other: object) -> object:
            return _operators().beside(other, self)


def _operators() -> ModuleType:
    from llama_retrieval_ext.pipeline import operators  # noqa: PLC0415 - it imports every kind

    return operators


def undefined(stage: object, kind: type, signature: str) -> ConfigurationError:
    """Return the error for a call of a function that a stage's class does not define."""
    name, function = type(stage).__name__, signature.partition("(")[0]
    plan = f"{function}_plan"
    if getattr(type(stage), plan) is not getattr(kind, plan):
        return ConfigurationError(
            f"{name} has no {function}: it waits for something, so it defines {plan}, which a "
            "pipeline runs; put it into one"
        )
    return ConfigurationError(
        f"{name} defines neither {function} nor {plan}; write `def {signature}` in {name}"
    )


RefineFunction: TypeAlias = (
    Callable[[Query, list[Hit]], Sequence[NodeWithScore]]
    | Callable[[list[Hit]], Sequence[NodeWithScore]]
)


class Refine(Operand, ABC):
    """Stage that refines a ranking: ``retriever >> refine``. It never adds ids.

    A subclass defines `refine`, a plain function of the query and the hits. The pipeline checks the
    result: hits that were in the ranking, each once, with finite scores. A hit returned without a
    score keeps its old score. If the hits are reordered but not rescored, their scores are raised
    to fit the order; if they are rescored but not reordered, they are sorted.

    A stage that does I/O (a model, a store, a service) defines `refine_plan` instead, a generator
    that yields its calls, so that sync and async callers share one implementation.

    Attributes:
        fast: Whether `refine` takes negligible time. Async callers run it on the event loop if
            True, and in a thread otherwise.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
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
        """Whether the result is best first; if not, no stage can follow."""
        return True

    @property
    def most(self) -> int | None:
        """Maximum number of hits that the stage returns; None for no limit."""
        limit: int | None = getattr(self, "top_k", None)
        return limit

    @property
    def reranks(self) -> bool:
        """Whether the stage orders all hits, so that an empty result means a failure."""
        return False

    @property
    def adds(self) -> bool:
        """Whether the stage can return hits that were not in the ranking; False by default."""
        return False

    def refine(
        self,
        query: Query,  # noqa: ARG002 - subclasses use it
        hits: Sequence[Hit],  # noqa: ARG002 - subclasses use it
    ) -> Sequence[NodeWithScore]:
        """Return the refined ranking, best first, with new objects for changed hits.

        Args:
            query: The original query, before any rewriting.
            hits: The ranking so far, best first.
        """
        raise undefined(self, Refine, "refine(self, query, hits)")

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[Sequence[NodeWithScore]]:
        """Return the plan for the refined ranking; by default one call of `refine`."""
        if self.fast:
            return ranking_of(self.refine(query, list(hits)), f"{type(self).__name__}.refine")
        answer = yield from call(Call(lambda: self.refine(query, list(hits))))
        return ranking_of(answer, f"{type(self).__name__}.refine")

    if TYPE_CHECKING:

        def __rshift__(
            self, other: "Refine | BaseNodePostprocessor | RefineFunction"
        ) -> "Refine": ...
        @overload
        def __rrshift__(self, other: BaseRetriever) -> "Pipeline": ...
        @overload
        def __rrshift__(self, other: "BaseNodePostprocessor | RefineFunction") -> "Refine": ...
        def __rrshift__(self, other: object) -> object: ...


class Rewrite(Operand, ABC):
    """Stage that rewrites a query: ``rewrite >> retriever``.

    The retriever gets the rewritten query; later stages get the original one. The scope and the
    filters of the original query apply to both.

    A subclass defines `rewrite`, a plain function of the query. A stage that does I/O, such as with
    a language model, defines `rewrite_plan` instead, a generator that yields its calls.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
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
            query: The query so far. Fields that the returned form lacks (scope and filters; for a
                text all but the text) are unchanged; the embedding is dropped with its text.
        """
        raise undefined(self, Rewrite, "rewrite(self, query)")

    def rewrite_plan(self, query: Query) -> Plan[str | QueryBundle]:
        """Return the plan for the rewritten query; by default one call of `rewrite`."""
        answer = yield from call(Call(lambda: self.rewrite(query)))
        return query_of(answer, f"{type(self).__name__}.rewrite")

    if TYPE_CHECKING:

        @overload
        def __rshift__(self, other: "Rewrite") -> "Rewrite": ...
        @overload
        def __rshift__(self, other: "FanOut") -> "FanOut": ...
        @overload
        def __rshift__(self, other: BaseRetriever) -> "Retriever": ...
        @overload
        def __rshift__(self, other: "Unfused") -> "Unfused": ...
        def __rshift__(self, other: object) -> object: ...


class FanOut(Operand, ABC):
    """Stage that derives several queries; they need a fusion: ``fan_out >> a >> RRF()``.

    A subclass defines `fan_out`, a plain function of the query. A stage that does I/O defines
    `fan_out_plan` instead, a generator that yields its calls.
    """

    def fan_out(self, query: Query) -> Sequence[str | QueryBundle]:  # noqa: ARG002 - subclasses use it
        """Return the queries, each in a form that `Rewrite.rewrite` may return.

        Args:
            query: The query so far; it is used if the result is empty.
        """
        raise undefined(self, FanOut, "fan_out(self, query)")

    def fan_out_plan(self, query: Query) -> Plan[Sequence[str | QueryBundle]]:
        """Return the plan for the queries; by default one call of `fan_out`."""
        answer = yield from call(Call(lambda: self.fan_out(query)))
        function = f"{type(self).__name__}.fan_out"
        forms = items_of(answer, object, function, expected="queries (strings or Query)")
        return [query_of(form, function) for form in forms]

    if TYPE_CHECKING:

        def __rshift__(self, other: "BaseRetriever | Leg | Branches") -> "Unfused": ...


def check_last(refines: Sequence[Refine]) -> None:
    """Raise unless each stage gets a best-first ranking."""
    for before, behind in pairwise(refines):
        if before.keeps_order:
            continue
        if before == behind:
            raise CompositionError(f"{before!r} undoes itself; write {before!r} once")
        first = [stage for stage in refines if stage.keeps_order]
        raise CompositionError(
            f"{behind!r} needs hits that are best first, which {before!r} leaves; put it last: "
            + " >> ".join(map(repr, [*first, before]))
        )


T = TypeVar("T")

_SHOWN: Final = 80


def ranking_of(value: object, function: str) -> list[NodeWithScore]:
    """Return the value as a list, if it is a sequence of hits."""
    return items_of(value, NodeWithScore, function, expected="hits (NodeWithScore)")


def items_of(value: object, kind: type[T], function: str, *, expected: str) -> list[T]:
    """Return the value as a list, if it is a sequence of items of one class."""
    refuse_running(value, function)
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ConfigurationError(
            f"{function} must return a list of {expected}, got {_shown(value)}"
            + ("; add a return statement" if value is None else "")
        )
    items: list[T] = []
    for index, item in enumerate(value):
        if not isinstance(item, kind):
            raise ConfigurationError(
                f"{function} must return a list of {expected}, got {_shown(item)} as item {index}"
            )
        items.append(item)
    return items


def query_of(value: object, function: str) -> str | QueryBundle:
    """Return the value, if it is a query: text, ``QueryBundle`` or `Query`."""
    refuse_running(value, function)
    if isinstance(value, str | QueryBundle):
        return value
    raise ConfigurationError(
        f"{function} must return a string, a QueryBundle or a Query, got {_shown(value)}; for "
        "a Query with another text write dataclasses.replace(query, query_str=...)"
    )


def plan_of(plan: Plan[T], function: str) -> Plan[T]:
    """Return the plan, if it is a generator."""
    if hasattr(plan, "send"):
        return plan
    name = function.rpartition(".")[2].removesuffix("_plan")
    raise ConfigurationError(
        f"{function} must be a generator, which yields its calls and returns the result; a "
        f"function that only returns the result is named {name}"
    )


def refuse_running(value: object, function: str) -> None:
    """Raise if the value is a coroutine or a generator instead of a result."""
    name = function.rpartition(".")[2]
    if isinstance(value, Coroutine):
        value.close()
        raise ConfigurationError(
            f"{function} is an async function; write it as `def {name}`, or define {name}_plan, "
            "a generator that yields its calls, for a stage that waits for something"
        )
    if isinstance(value, Generator):
        value.close()
        raise ConfigurationError(
            f"{function} is a generator and must return a value; to return a plan, name it "
            f"{name}_plan"
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
