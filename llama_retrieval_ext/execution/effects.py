"""What a plan, a generator, may ask the driver that carries it out."""

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """Call something that may take a while; the plan gets what it returns, or its error.

    Attributes:
        function: The blocking way; the asyncio driver runs it in a thread if there is no other.
        coroutine: The way that does not block, where there is a real one.
    """

    function: Callable[[], T_co]
    coroutine: Callable[[], Awaitable[T_co]] | None = None

    def then(self, change: Callable[[T_co], U]) -> "Call[U]":
        """The same call, with its result changed by a function that takes no time.

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
    """Wait, in seconds; the plan gets None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Task(Generic[T_co]):
    """A plan that runs beside others.

    Attributes:
        name: What it is called in the trace.
        plan: What runs.
        timeout_s: Seconds it may take; None for as long as there is.
        enters: Id of what is entered, where following ids could go round in circles.
        leg: What it is called where degraded parts inside it are named; None for no place of its
            own.
    """

    name: str
    plan: "Plan[T_co]"
    timeout_s: float | None = None
    enters: str | None = None
    leg: str | None = None


@dataclass(frozen=True, slots=True)
class Together:
    """Run tasks side by side; the plan gets one `Outcome` a task, in their order, and no error."""

    tasks: "Sequence[Task[Any]]"


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """How a task ended: with a value, or with an error."""

    value: T_co | None = None
    error: BaseException | None = None

    def result(self) -> T_co:
        """The value; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None is a value where T_co allows it


Effect: TypeAlias = Call[Any] | Sleep | Together
# What an effect answers depends on the effect, which a generator's send type cannot say.
Plan: TypeAlias = Generator[Effect, Any, T_co]
