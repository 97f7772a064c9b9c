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


def test_a_breaker_opens_after_the_configured_failures_in_a_row(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    assert not is_refused(breaker)
    assert not breaker.is_open
    fail(breaker, 1)
    assert is_refused(breaker)
    assert breaker.is_open


def test_a_success_resets_the_failures_of_a_breaker(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    breaker.succeeded()
    fail(breaker, 2)
    assert not is_refused(breaker)


def test_an_open_breaker_says_when_it_tries_again(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 4
    with pytest.raises(CircuitOpenError, match=r"after 3 failures in a row; tried again in 6\.0 s"):
        breaker.check()


def test_a_breaker_lets_one_call_through_after_its_reset_time(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    fail(breaker, 3)
    clock.now += 10
    assert not breaker.is_open
    assert [is_refused(breaker) for _ in range(3)] == [False, True, True]


def test_a_breaker_closes_when_the_trial_call_succeeds(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    fail(breaker, 3)
    clock.now += 10
    breaker.check()
    breaker.succeeded()
    assert [is_refused(breaker) for _ in range(3)] == [False, False, False]
    fail(breaker, 2)
    assert not breaker.is_open


def test_a_breaker_opens_again_when_the_trial_call_fails(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    fail(breaker, 3)
    clock.now += 10
    breaker.check()
    fail(breaker, 1)
    clock.now += 9
    assert is_refused(breaker)
    clock.now += 1
    assert not is_refused(breaker)


def test_a_breaker_allows_another_trial_when_the_first_never_ends(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    fail(breaker, 3)
    clock.now += 10
    breaker.check()
    clock.now += 10
    assert not is_refused(breaker)


def test_only_one_of_many_threads_gets_the_trial_call(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    fail(breaker, 3)
    clock.now += 10
    start, refused = Barrier(8), []

    def check() -> None:
        start.wait()
        refused.append(is_refused(breaker))

    threads = [Thread(target=check) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(refused) == [False] + [True] * 7


@pytest.mark.parametrize(("failures", "reset_s"), [(0, 1.0), (1, 0.0), (1, -1.0)])
def test_a_breaker_refuses_impossible_arguments(failures: int, reset_s: float) -> None:
    with pytest.raises(ConfigurationError, match=r"failures must|reset_s must"):
        CircuitBreaker(failures=failures, reset_s=reset_s)
