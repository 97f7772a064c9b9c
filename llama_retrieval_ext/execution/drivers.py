"""Drivers that execute plans: `run` with threads, `arun` on an event loop.

The threads come from an unbounded pool of daemon threads. The pools of ``concurrent.futures`` are
not suitable: a bounded pool deadlocks when composites nest, a leg that hangs blocks a worker
forever, and the interpreter waits for it at exit.
"""

import asyncio
import inspect
import math
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from contextvars import copy_context
from dataclasses import replace
from dis import opmap
from functools import partial, wraps
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from types import CodeType
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, get_args

from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.errors import DeadlineExceededError, ExecutionError, RetrievalExtError
from llama_retrieval_ext.execution.context import Context, current_context, entered
from llama_retrieval_ext.execution.plan import Call, Effect, Outcome, Plan, Sleep, Task, Together

T = TypeVar("T")
P = ParamSpec("P")


def run(plan: Plan[T]) -> T:
    """Return the result of a plan; parallel tasks run on further threads.

    It works in a script, in a thread, and inside a running event loop, which it blocks.
    """
    with entered(current_context()):
        return drive(plan, _perform)


async def arun(plan: Plan[T]) -> T:
    """Return the result of a plan on the running event loop, without blocking it."""
    with entered(current_context()):
        return await adrive(plan, _aperform)


def blocking(plan: Callable[P, Plan[T]]) -> Callable[P, T]:
    """Return a function that runs the plan of the decorated function and returns its result.

    Examples:
        >>> from llama_retrieval_ext.execution import Call
        >>> @blocking
        ... def doubled(number: int) -> Plan[int]:
        ...     return 2 * (yield Call(lambda: number))
        >>> doubled(21), asynchronous(doubled).__name__
        (42, 'adoubled')

    """

    def blocked(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(plan(*args, **kwargs))

    show_as(blocked, plan)
    return checked_call(blocked)


def asynchronous(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the async twin of a function that `blocking` decorates."""
    plan: Any = inspect.unwrap(function)  # the function that `blocking` wraps

    async def awaited(*args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await arun(plan(*args, **kwargs))
        return result

    show_as(awaited, plan, prefix="a")
    return checked_call(awaited)


def show_as(function: Any, plan: Any, result_type: Any = None, *, prefix: str = "") -> None:  # noqa: ANN401 - any functions
    """Give a function the name and signature of a plan, with the type of the plan's result."""
    wraps(plan)(function)
    if prefix:
        function.__name__ = f"{prefix}{plan.__name__}"
        function.__qualname__ = (
            f"{plan.__qualname__.removesuffix(plan.__name__)}{function.__name__}"
        )
        function.__doc__ = f"`{plan.__name__}` without blocking the event loop."
    shown = inspect.signature(plan)
    (*_, result) = get_args(shown.return_annotation) or (shown.return_annotation,)
    if result_type is not None:
        (*_, result) = get_args(result) or (result,)
        result = result_type[result]
    function.__signature__ = shown.replace(return_annotation=result)
    function.__annotations__ = {**plan.__annotations__, "return": result}


def called(
    function: Callable[P, T], twin: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> Plan[T]:
    """Return the plan that calls a function, or its async twin, with arguments."""
    result: T = yield Call(lambda: function(*args, **kwargs), lambda: twin(*args, **kwargs))
    return result


def within(name: str, plan: Plan[T], timeout_s: float | None) -> Plan[T]:
    """Return the plan with a time limit."""
    if timeout_s is None:
        return (yield from plan)
    outcomes: list[Outcome[T]] = yield Together([Task(name, plan, timeout_s)])
    return outcomes[0].result()


def drive(requests: Generator[Any, Any, T], perform: Callable[[Any], object]) -> T:
    """Return the result of a generator of requests; a function answers each of them.

    An error of the function is raised in the generator.
    """
    try:
        request = next(requests)
        while True:
            try:
                answer = perform(request)
            except BaseException as error:  # noqa: BLE001 - the generator decides what it means
                request = requests.throw(error)
            else:
                request = requests.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # Any in every generator


async def adrive(
    requests: Generator[Any, Any, T], perform: Callable[[Any], Awaitable[object]]
) -> T:
    """Return the result of `drive` with a coroutine function, on the running event loop."""
    try:
        request = next(requests)
        while True:
            try:
                answer = await perform(request)
            except BaseException as error:  # noqa: BLE001 - the generator decides what it means
                request = requests.throw(error)
            else:
                request = requests.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # Any in every generator


def _perform(effect: Effect) -> object:
    context = current_context()
    if isinstance(effect, Call):
        if context.deadline is not None:
            context.check_time()
        return effect.function()
    if isinstance(effect, Sleep):
        time.sleep(_affordable(effect, context))
        return None
    return _together(effect, context)


async def _aperform(effect: Effect) -> object:
    context = current_context()
    if isinstance(effect, Call):
        context.check_time()
        make = effect.coroutine
        return await (in_thread(effect.function) if make is None else make())
    if isinstance(effect, Sleep):
        await asyncio.sleep(_affordable(effect, context))
        return None
    return await _atogether(effect, context)


def _together(effect: Together, context: Context) -> list[Outcome[Any]]:
    # A late thread is abandoned, because threads cannot be stopped.
    has_deadline, steps = False, list[_Step]()
    for task in effect.tasks:
        step = _Step(task, context)
        steps.append(step)
        has_deadline = has_deadline or step.context.deadline is not None
    if has_deadline:
        futures = [pool.submit(step.run) for step in steps]
        ended = {step: step.outcome_of(futures[index]) for index, step in _by_deadline(steps)}
        return [ended[step] for step in steps]
    # Without time limits the last task runs on this thread, and then those that no other thread has
    # started yet: for short tasks, waiting for the interpreter lock takes longer than the tasks.
    started = [(step, pool.submit(step.run)) for step in steps[:-1]]
    outcomes = [steps[-1].run()] if steps else []
    for step, future in reversed(started):
        outcomes.append(step.run() if future.cancel() else future.result())
    return outcomes[::-1]


async def _atogether(effect: Together, context: Context) -> list[Outcome[Any]]:
    steps = [_Step(task, context) for task in effect.tasks]
    running = [asyncio.create_task(step.arun()) for step in steps]
    try:
        ended = {
            step: await step.aoutcome_of(running[index]) for index, step in _by_deadline(steps)
        }
        return [ended[step] for step in steps]
    finally:
        for task in running:
            task.cancel()  # no effect on completed tasks


class _Step:
    """A running task with its deadline and its step in the trace."""

    __slots__ = ("by_query", "context", "task")

    def __init__(self, task: Task[Any], context: Context) -> None:
        trace = None if context.trace is None else context.trace.begin(task.name, beside=True)
        # Whether the query's deadline is before the task's own.
        self.by_query = task.timeout_s is None
        self.task = task
        path = context.path if task.enters is None else context.path | {task.enters}
        legs = context.legs if task.leg is None else (*context.legs, task.leg)
        if context.deadline is not None or task.timeout_s is not None:
            left = context.remaining_s()
            self.by_query = task.timeout_s is None or (left is not None and left <= task.timeout_s)
            context = context.within(task.timeout_s)
        self.context = replace(context, trace=trace, on_partial=None, path=path, legs=legs)

    def run(self) -> Outcome[Any]:
        with entered(self.context):
            try:
                return self._ended(Outcome(drive(self.task.plan, _perform)))
            except asyncio.CancelledError as error:
                return self._cancelled(error)
            except Exception as error:  # noqa: BLE001 - an outcome carries it to the plan
                return self._ended(Outcome(error=error))

    async def arun(self) -> Outcome[Any]:
        with entered(self.context):
            try:
                return self._ended(Outcome(await adrive(self.task.plan, _aperform)))
            except Exception as error:  # noqa: BLE001 - an outcome carries it to the plan
                return self._ended(Outcome(error=error))

    def outcome_of(self, future: "Future[Outcome[Any]]") -> Outcome[Any]:
        wait_for_futures([future], timeout=self.context.remaining_s())
        return future.result() if future.done() else self._late()

    async def aoutcome_of(self, task: "asyncio.Task[Outcome[Any]]") -> Outcome[Any]:
        await asyncio.wait([task], timeout=self.context.remaining_s())
        if not task.done():
            return self._late()
        # A cancelled query ends the wait above, so this cancellation came from inside the task.
        return self._cancelled() if task.cancelled() else task.result()

    def _cancelled(self, cause: BaseException | None = None) -> Outcome[Any]:
        error = ExecutionError(f"{self.task.name!r} was cancelled from inside")
        error.__cause__ = cause
        return self._ended(Outcome(error=error))

    def _late(self) -> Outcome[Any]:
        limit = "the time of the query" if self.by_query else f"{self.task.timeout_s} s"
        error = DeadlineExceededError(f"{self.task.name!r} did not answer within {limit}")
        return self._ended(Outcome(error=error))

    def _ended(self, outcome: Outcome[Any]) -> Outcome[Any]:
        if isinstance(outcome.error, DeadlineExceededError):
            outcome.error.by_query = self.by_query
        if self.context.trace is not None:
            self.context.trace.end(result=outcome.value, error=outcome.error)
        return outcome


def _by_deadline(steps: Sequence[_Step]) -> list[tuple[int, _Step]]:
    """Return steps with their indices, earliest deadline first, to detect timeouts promptly."""

    def due(placed: tuple[int, _Step]) -> float:
        deadline = placed[1].context.deadline
        return math.inf if deadline is None else deadline

    return sorted(enumerate(steps), key=due)


def _affordable(sleep: Sleep, context: Context) -> float:
    remaining = context.remaining_s()
    return sleep.seconds if remaining is None else min(sleep.seconds, remaining)


_Job: TypeAlias = tuple[Future[Any], Callable[[], Any]]

_IDLE_S = 20.0


class DaemonPool:
    """Unbounded pool of daemon threads; idle threads are reused."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Discard all threads; a forked child process does not inherit them."""
        self._lock = Lock()
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._idle = 0

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Run a function immediately in its own thread, with the context variables of this one."""
        future: Future[T] = Future()
        job = future, partial(copy_context().run, function)  # for traces and spans
        with self._lock:
            reuse = self._idle > 0
            self._idle -= reuse
        if reuse:
            self._jobs.put(job)
        else:
            Thread(target=self._work, args=([job],), daemon=True).start()
        return future

    def _work(self, first: list[_Job]) -> None:
        job: _Job | None = first.pop()  # a thread holds references to its arguments
        while job is not None:
            _run(*job)
            del job  # an idle thread must not keep the function or its result alive
            job = self._next()

    def _next(self) -> _Job | None:
        with self._lock:
            self._idle += 1
        try:
            return self._jobs.get(timeout=_IDLE_S)
        except Empty:
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    return None
        return self._jobs.get()  # each decrement of `_idle` is followed by a job


def _run(future: "Future[T]", function: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except StopIteration as stop:
        # As in generators: asyncio futures reject it, and the waiting task would never end.
        error = RuntimeError("a leg raised StopIteration")
        error.__cause__ = stop
        future.set_exception(error)
    except BaseException as error:  # noqa: BLE001 - it is handed on, not swallowed
        future.set_exception(error)


# Module state, because threads belong to the process.
pool = DaemonPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.reset)


def in_thread(function: Callable[[], T]) -> "asyncio.Future[T]":
    """Return the future result of a function, which runs in a thread of the pool."""
    return asyncio.wrap_future(pool.submit(function))


# Errors of a store without an async client, or with another parameter name. An unreachable source
# raises none of these, so it is not called twice.
_NO_ASYNC: Final = (AssertionError, AttributeError, NotImplementedError, TypeError, ValueError)


async def awaited_or_in_thread(attempt: Callable[[], Awaitable[T]], blocking: Callable[[], T]) -> T:
    """Return the async result; if there is no async client, run ``blocking`` in a thread."""
    try:
        return await attempt()
    except RetrievalExtError:
        raise
    except _NO_ASYNC:
        return await in_thread(blocking)


def blocking_or_awaited(blocking: Callable[[], T], attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the blocking result; if that is not implemented, the async one, from its own loop."""
    try:
        return blocking()
    except RetrievalExtError:
        raise
    except NotImplementedError:
        return from_own_loop(attempt)


def either_way(
    function: Callable[..., Any], *args: object
) -> tuple[Callable[[], Any], Callable[[], Awaitable[Any]] | None]:
    """Return the blocking and the async call of a function that is one of the two."""

    def blocking() -> object:
        answer = function(*args)
        return from_own_loop(lambda: answer) if inspect.isawaitable(answer) else answer

    # An object with an async ``__call__`` is no coroutine function to `inspect`.
    is_async = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
    return blocking, (lambda: function(*args)) if is_async else None


# Instructions of ``await`` and ``async with``, and of ``async for``.
_AWAITING: Final = {opmap["GET_AWAITABLE"], opmap["GET_AITER"]}


def awaits(function: Callable[..., object]) -> bool:
    """Return whether a call of an async function gives the event loop back while it works.

    Without an ``await`` it blocks the loop, as LlamaIndex's default async methods do, which call
    the blocking ones, and those of many models and retrievers.

    Examples:
        >>> async def blocking(): return time.sleep(1)
        >>> async def waiting(): return await asyncio.sleep(1)
        >>> awaits(blocking), awaits(waiting)
        (False, True)

    """
    code = getattr(inspect.unwrap(function), "__code__", None)  # without LlamaIndex's spans
    if type(code) is not CodeType or not code.co_flags & inspect.CO_COROUTINE:  # a mock, say
        return True
    return not _AWAITING.isdisjoint(code.co_code[::2])  # between them are arguments


def from_own_loop(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of an async function to blocking code, also inside a running loop."""

    async def awaited() -> T:
        return await attempt()

    return pool.submit(lambda: asyncio.run(awaited())).result()
