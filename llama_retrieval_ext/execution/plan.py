"""Effects that a plan (a generator) yields to its driver.

A custom stage does I/O with these: it yields a `Call` for one slow operation, or a `Together` of
`Task`s for several in parallel, and receives their results. One plan works for sync and async
callers, respects the query's deadline, and appears in its trace.

Examples:
    >>> import asyncio
    >>> from llama_retrieval_ext import Call, Hit, Refine, Task, Together
    >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
    >>> async def clicks_of(node_id):  # asks a service, say
    ...     return {"a": 1, "b": 7}[node_id]
    >>> class ByClicks(Refine):
    ...     def refine_plan(self, query, hits):
    ...         tasks = [Task(f"clicks of {hit.node_id}", self.clicks(hit)) for hit in hits]
    ...         outcomes = yield Together(tasks)
    ...         scored = [
    ...             Hit(node=hit.node, score=outcome.result(), source="clicks")
    ...             for hit, outcome in zip(hits, outcomes)
    ...         ]
    ...         return sorted(scored, key=lambda hit: -hit.score)
    ...
    ...     def clicks(self, hit):
    ...         return (yield Call(
    ...             lambda: asyncio.run(clicks_of(hit.node_id)), lambda: clicks_of(hit.node_id)
    ...         ))
    >>> ranking = FakeRetriever([("a", 0.9), ("b", 0.5)]) >> ByClicks()
    >>> [hit.node_id for hit in ranking.retrieve("annual leave")]
    ['b', 'a']
    >>> [hit.node_id for hit in asyncio.run(ranking.aretrieve("annual leave"))]
    ['b', 'a']

"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """A slow call; the plan receives its result or its error.

    Attributes:
        function: The blocking function; without ``coroutine``, asyncio runs it in a thread.
        coroutine: The async function, if there is one that does not block.
    """

    function: Callable[[], T_co]
    coroutine: Callable[[], Awaitable[T_co]] | None = None

    def then(self, change: Callable[[T_co], U]) -> "Call[U]":
        """Return the call with its result transformed by a fast function.

        Examples:
            >>> Call(lambda: 20).then(lambda number: number + 1).function()
            21

        """
        coroutine = self.coroutine
        if coroutine is None:
            return Call(lambda: change(self.function()))

        async def changed() -> U:
            return change(await coroutine())

        return Call(lambda: change(self.function()), changed)


@dataclass(frozen=True, slots=True)
class Sleep:
    """A pause in seconds; the plan receives None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Task(Generic[T_co]):
    """A plan that runs in parallel with others.

    Attributes:
        name: Its name in the trace.
        plan: The plan to run.
        timeout_s: Time limit in seconds; None for the remaining time.
        enters: Id that the task follows, to detect cycles.
        leg: Name in the paths of degraded parts inside the task; None to keep the path unchanged.
    """

    name: str
    plan: "Plan[T_co]"
    timeout_s: float | None = None
    enters: str | None = None
    leg: str | None = None


@dataclass(frozen=True, slots=True)
class Together:
    """Parallel tasks; the plan receives one `Outcome` per task, in order, and no error."""

    tasks: "Sequence[Task[Any]]"


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """Result of a task: a value or an error."""

    value: T_co | None = None
    error: BaseException | None = None

    def result(self) -> T_co:
        """Return the value, or raise the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None is a value where T_co allows it


Effect: TypeAlias = Call[Any] | Sleep | Together
# The result depends on the effect, which a generator's send type cannot express.
Plan: TypeAlias = Generator[Effect, Any, T_co]


def finished(value: U) -> Plan[U]:
    """Return a plan with a known result."""
    yield from ()
    return value
