from threading import Barrier, Thread

import pytest

from llama_retrieval_ext.errors import CircuitOpenError, ConfigurationError
from llama_retrieval_ext.execution.legs import CircuitBreaker


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(failures=3, reset_s=10, clock=clock)


def fail(breaker: CircuitBreaker, times: int) -> None:
    for _ in range(times):
        breaker.failed()


def is_refused(breaker: CircuitBreaker) -> bool:
    try:
        breaker.check()
    except CircuitOpenError:
        return True
    return False


def test_it_is_closed_until_so_many_failures_in_a_row(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    assert not is_refused(breaker)
    assert not breaker.is_open
    fail(breaker, 1)
    assert is_refused(breaker)
    assert breaker.is_open


def test_a_success_starts_the_count_anew(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    breaker.succeeded()
    fail(breaker, 2)
    assert not is_refused(breaker)


def test_it_says_how_long_it_rests(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 4
    with pytest.raises(CircuitOpenError, match=r"after 3 failures in a row; tried again in 6\.0 s"):
        breaker.check()


def test_after_its_rest_it_lets_one_call_through(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 10
    assert not breaker.is_open
    assert [is_refused(breaker) for _ in range(3)] == [False, True, True]


def test_it_closes_when_that_call_goes_well(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 10
    breaker.check()
    breaker.succeeded()
    assert [is_refused(breaker) for _ in range(3)] == [False, False, False]
    fail(breaker, 2)
    assert not breaker.is_open


def test_it_rests_again_when_that_call_fails(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 10
    breaker.check()
    fail(breaker, 1)
    clock.now += 9
    assert is_refused(breaker)
    clock.now += 1
    assert not is_refused(breaker)


def test_it_tries_again_when_nothing_is_heard_of_that_call(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    fail(breaker, 3)
    clock.now += 10
    breaker.check()
    clock.now += 10
    assert not is_refused(breaker)


def test_of_many_threads_one_may_try(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 10
    start, refused = Barrier(8), []

    def try_it() -> None:
        start.wait()
        refused.append(is_refused(breaker))

    threads = [Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(refused) == [False] + [True] * 7


@pytest.mark.parametrize(("failures", "reset_s"), [(0, 1.0), (1, 0.0), (1, -1.0)])
def test_one_that_cannot_work_is_refused(failures: int, reset_s: float) -> None:
    with pytest.raises(ConfigurationError, match=r"failures must|reset_s must"):
        CircuitBreaker(failures=failures, reset_s=reset_s)
