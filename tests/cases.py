"""Many cases of one promise in one test: each runs, and a failure names those that fail."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeAlias

import pytest

Test: TypeAlias = Callable[..., Any]
Ids: TypeAlias = Iterable[object] | Callable[[Any], object] | None


def each_case(
    names: str | Sequence[str],
    values: Iterable[Any],
    ids: Ids = None,
    *,
    side_by_side: bool = False,
) -> Callable[[Test], Test]:
    """Run a test for each of the values, as one test; called like `pytest.mark.parametrize`.

    For cases that need no fixture of their own: they share those of the test. A parametrised case
    costs milliseconds, such a case nothing. All run; what the first failure raises is raised, with
    a note that names each case that failed. ``side_by_side`` gives each a thread, for cases that
    mostly wait (and are no coroutines).
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    cases = [*_cases(arguments, [*values], ids)]

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        rest = [each for each in signature.parameters.values() if each.name not in arguments]

        @functools.wraps(test)
        def run_all(*args: Any, **fixtures: Any) -> None:
            def failed(named: tuple[str, Mapping[str, Any]]) -> list[BaseException]:
                name, case = named
                failures: list[BaseException] = []
                with _collected(name, failures):
                    test(*args, **fixtures, **case)
                return failures

            if side_by_side:
                with ThreadPoolExecutor(len(cases)) as threads:
                    _raise_first([*chain(*threads.map(failed, cases))])
            else:
                _raise_first([*chain(*map(failed, cases))])

        @functools.wraps(test)
        async def await_all(*args: Any, **fixtures: Any) -> None:
            failures: list[BaseException] = []
            for name, case in cases:
                with _collected(name, failures):
                    await test(*args, **fixtures, **case)
            _raise_first(failures)

        assert not (side_by_side and inspect.iscoroutinefunction(test))
        wrapper: Any = await_all if inspect.iscoroutinefunction(test) else run_all
        wrapper.__signature__ = signature.replace(parameters=rest)
        decorated: Test = wrapper
        return decorated

    return decorate


def _cases(
    arguments: Sequence[str], values: Sequence[Any], ids: Ids
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    names = [ids(each) for each in values] if callable(ids) else values if ids is None else [*ids]
    for value, name in zip(values, names, strict=True):
        row = [value] if len(arguments) == 1 else [*value]
        shown = name if isinstance(name, str) else repr(value if name is None else name)
        yield shown, dict(zip(arguments, row, strict=True))


@contextmanager
def _collected(name: str, failures: list[BaseException]) -> Iterator[None]:
    try:
        yield
    except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - the first is raised
        failure.add_note(f"case: {name}")
        failures.append(failure)


def _raise_first(failures: Sequence[BaseException]) -> None:
    if not failures:
        return
    first, *others = failures
    for other in others:
        first.add_note(f"and so fails {other.__notes__[-1]}")
    raise first
