"""The kinds of stage: `Refine`, `Rewrite` and `FanOut`, and checks of what users' stages return.

LlamaIndex's retrievers and postprocessors define no ``>>``: the stage to their right handles it.
"""

from abc import ABC
from collections.abc import Callable, Coroutine, Generator, Sequence
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar, overload

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext.arguments import RecordsArguments
from llama_retrieval_ext.checks import CheckedArguments
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


class Operand(CheckedArguments, RecordsArguments):
    """A part of a pipeline, with ``>>`` and ``|``; subclasses declare the types that fit."""

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
    """The module of the operators, which imports every kind of stage."""
    return import_module("llama_retrieval_ext.pipeline.operators")


def undefined(stage: object, kind: type, signature: str) -> ConfigurationError:
    """The error for a call of a function that a stage's class does not define.

    Args:
        stage: An instance of the class.
        kind: The kind of stage, which has the function and, with ``_plan``, its other form.
        signature: The function's.
    """
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
    """Improves a ranking: ``retriever >> refine``. It never adds ids.

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
            query: The original query, before any rewriting.
            hits: The ranking so far, best first.
        """
        raise undefined(self, Refine, "refine(self, query, hits)")

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[Sequence[NodeWithScore]]:
        """The plan for the refined ranking; by default one call of `refine`."""
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
    """Rewrites a query: ``rewrite >> retriever``.

    The retriever gets the rewritten query; stages behind it get the original one. The scope and the
    filters of the original query hold for both.

    A subclass defines `rewrite`, a plain function of the query. One that waits for something, such
    as a language model, defines `rewrite_plan` instead, a generator that yields its calls.

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
            query: The query so far. What is not in the returned form (its scope and filters, and
                of a text all but the text) stays as it was; an embedding goes with its text.
        """
        raise undefined(self, Rewrite, "rewrite(self, query)")

    def rewrite_plan(self, query: Query) -> Plan[str | QueryBundle]:
        """The plan for the rewritten query; by default one call of `rewrite`."""
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
    """Derives several queries from one; their rankings need a fusion: ``fan_out >> a >> RRF()``.

    A subclass defines `fan_out`, a plain function of the query. One that waits for something
    defines `fan_out_plan` instead, a generator that yields its calls.
    """

    def fan_out(self, query: Query) -> Sequence[str | QueryBundle]:  # noqa: ARG002 - subclasses use it
        """Return the queries, each in a form that `Rewrite.rewrite` may return.

        Args:
            query: The query so far; it is used alone where the result is empty.
        """
        raise undefined(self, FanOut, "fan_out(self, query)")

    def fan_out_plan(self, query: Query) -> Plan[Sequence[str | QueryBundle]]:
        """The plan for the queries; by default one call of `fan_out`."""
        answer = yield from call(Call(lambda: self.fan_out(query)))
        function = f"{type(self).__name__}.fan_out"
        forms = items_of(answer, object, function, expected="queries (strings or Query)")
        return [query_of(form, function) for form in forms]

    if TYPE_CHECKING:

        def __rshift__(self, other: "BaseRetriever | Leg | Branches") -> "Unfused": ...


def check_last(refines: Sequence[Refine]) -> None:
    """Raise unless each stage gets a ranking that is best first.

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


T = TypeVar("T")

_SHOWN: Final = 80


def ranking_of(value: object, function: str) -> list[NodeWithScore]:
    """Return the value as a list, if it is a sequence of hits.

    Args:
        value: What the function returned.
        function: Its name, as ``Mine.refine``.

    Raises:
        ConfigurationError: It is something else.
    """
    return items_of(value, NodeWithScore, function, expected="hits (NodeWithScore)")


def items_of(value: object, kind: type[T], function: str, *, expected: str) -> list[T]:
    """Return the value as a list, if it is a sequence whose items are all of one class.

    Args:
        value: What the function returned.
        kind: The class of the items.
        function: Its name, as ``Mine.select``.
        expected: What the items are called.

    Raises:
        ConfigurationError: It is something else.
    """
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
    """Return the same value, if it is a query in one of its forms.

    Args:
        value: What the function returned.
        function: Its name, as ``Mine.rewrite``.

    Raises:
        ConfigurationError: It is something else.
    """
    refuse_running(value, function)
    if isinstance(value, str | QueryBundle):
        return value
    raise ConfigurationError(
        f"{function} must return a string, a QueryBundle or a Query, got {_shown(value)}; for "
        "a Query with another text write dataclasses.replace(query, query_str=...)"
    )


def plan_of(plan: Plan[T], function: str) -> Plan[T]:
    """Return the same plan, if it is one.

    Args:
        plan: What the function returned.
        function: Its name, as ``Mine.refine_plan``.

    Raises:
        ConfigurationError: It is no generator.
    """
    if hasattr(plan, "send"):
        return plan
    name = function.rpartition(".")[2].removesuffix("_plan")
    raise ConfigurationError(
        f"{function} must be a generator, which yields its calls and returns the result; a "
        f"function that only returns the result is named {name}"
    )


def refuse_running(value: object, function: str) -> None:
    """Raise if the value is a coroutine or a generator, which is not a result but has to be run.

    Args:
        value: What the function returned.
        function: Its name, as ``Mine.refine``.

    Raises:
        ConfigurationError: It is one of these.
    """
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
