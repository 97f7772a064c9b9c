import asyncio
import time
from collections.abc import Callable
from threading import Barrier, Thread

import pytest

from llama_retrieval_ext.errors import (
    CircuitOpenError,
    CompositionError,
    ConfigurationError,
    DimensionMismatchError,
    MissingDependencyError,
    ModelMismatchError,
    ScopeError,
    ScopeViolationError,
    TooFewLegsError,
    UnsupportedFilterError,
    UnsupportedModeError,
)
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.legs import Ask, CircuitBreaker, Leg, ask
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.testing.fakes import (
    FakeAsyncRetriever,
    FakeRetriever,
    FlakyRetriever,
    HangingRetriever,
)
from tests.cases import cases
from tests.execution.conftest import Composite, Search
from tests.patience import soon, unless_stalled

CALLER_ERRORS = [
    CompositionError("these do not fit"),
    ConfigurationError("no such option"),
    DimensionMismatchError("3, not 4"),
    MissingDependencyError("a reranker", "rerank"),
    ModelMismatchError("another model"),
    ScopeError("not yours"),
    ScopeViolationError("not yours", ("n1",)),
    UnsupportedFilterError("no such operator", "any"),
    UnsupportedModeError("no keywords"),
]


def down() -> FakeRetriever:
    return FakeRetriever(error=ConnectionError("backend down"))


def works() -> FakeRetriever:
    return FakeRetriever([("a", 0.5)])


def test_an_optional_leg_that_fails_is_left_out_and_reported(
    fused: Composite, search_anywhere: Search
) -> None:
    result = search_anywhere(fused(Leg("broken", down()), Leg("fine", works())), "query")
    assert node_ids(result.hits) == ["a"]
    assert [(part.where, part.reason) for part in result.degraded] == [
        ("broken", "ConnectionError: backend down")
    ]


def test_a_required_leg_that_fails_ends_the_query_with_its_own_error(
    fused: Composite, search: Search
) -> None:
    leg = Leg("broken", down(), required=True)
    with pytest.raises(ConnectionError, match="backend down") as caught:
        search(fused(leg, works()), "query")
    assert caught.value.__notes__ == ["in leg 'broken'"]


def test_an_error_deep_in_a_tree_has_a_note_for_each_leg(fused: Composite) -> None:
    inner = fused(Leg("inner", down(), required=True))
    with pytest.raises(ConnectionError) as caught:
        fused(Leg("outer", inner, required=True)).retrieve("query")
    assert caught.value.__notes__ == ["in leg 'inner'", "in leg 'outer'"]


def test_a_runtime_error_of_a_leg_keeps_its_message(fused: Composite) -> None:
    """The fusion of LlamaIndex replaces it by "Detected nested async"."""
    leg = Leg("broken", FakeAsyncRetriever(error=RuntimeError("backend down")), required=True)
    with pytest.raises(RuntimeError) as caught:
        fused(leg).retrieve("query")
    assert str(caught.value) == "backend down"


def test_a_query_fails_where_every_leg_does(fused: Composite, search: Search) -> None:
    with pytest.raises(TooFewLegsError) as caught:
        search(fused(Leg("one", down()), Leg("two", FakeRetriever(error=OSError("gone")))), "query")
    assert str(caught.value) == (
        "0 of 2 legs answered, at least 1 must (one: ConnectionError: backend down; "
        "two: OSError: gone)"
    )
    assert {name: type(cause) for name, cause in caught.value.causes.items()} == {
        "one": ConnectionError,
        "two": OSError,
    }
    assert caught.value.__cause__ is caught.value.causes["one"]


@cases(("min_success", "enough"), [(0, True), (2, True), (3, False), (9, False)])
def test_at_least_min_success_legs_must_answer(
    fused: Composite, *, min_success: int, enough: bool
) -> None:
    retriever = fused(works(), down(), works(), min_success=min_success)
    if enough:
        assert node_ids(retriever.retrieve("query")) == ["a"]
    else:
        with pytest.raises(TooFewLegsError, match=rf"2 of 3 .* at least {min_success} must"):
            retriever.retrieve("query")


def test_a_leg_without_hits_has_answered(fused: Composite, search: Search) -> None:
    result = search(fused(FakeRetriever(), FakeRetriever()), "query")
    assert (result.hits, result.degraded) == ([], ())


def test_answers_come_in_the_order_of_the_legs() -> None:
    legs = [Leg("slow", FakeRetriever([("a", 0.5)], delay_s=0.03)), Leg("broken", down())]
    legs.append(Leg("fast", FakeRetriever([("b", 0.5)])))
    rankings = run(ask({leg.name: Ask(leg, Query("query")) for leg in legs}))
    found = [(name, node_ids(ranking)) for name, ranking in rankings.items()]
    assert found == [("slow", ["a"]), ("fast", ["b"])]


def test_a_failing_leg_is_retried(fused: Composite, search: Search) -> None:
    flaky = FlakyRetriever([("a", 0.5)], failures=2)
    result = search(fused(Leg("flaky", flaky, retries=2, backoff_s=0.001)), "query")
    assert node_ids(result.hits) == ["a"]
    assert result.degraded == ()
    assert len(flaky.calls) == 3


def test_a_leg_is_retried_at_most_as_often_as_configured(fused: Composite, search: Search) -> None:
    flaky = FlakyRetriever([("a", 0.5)], failures=9)
    result = search(fused(Leg("flaky", flaky, retries=2, backoff_s=0.001), works()), "query")
    assert len(flaky.calls) == 3
    assert [part.where for part in result.degraded] == ["flaky"]


def test_the_pause_before_a_retry_doubles(fused: Composite) -> None:
    flaky = FlakyRetriever([("a", 0.5)], failures=3)
    retriever = fused(Leg("flaky", flaky, retries=3, backoff_s=0.01))
    for search_it in (retriever.search, lambda query: asyncio.run(retriever.asearch(query))):
        flaky.calls.clear()
        began = time.perf_counter()
        assert search_it("query").hits
        assert 0.07 <= time.perf_counter() - began < 30  # 0.01 + 0.02 + 0.04


@pytest.mark.slow
@unless_stalled
def test_retries_stay_within_the_timeout_of_the_leg(fused: Composite, search: Search) -> None:
    flaky = FlakyRetriever(failures=99)
    leg = Leg("flaky", flaky, retries=99, backoff_s=0.06, timeout_s=0.6)
    began = time.perf_counter()
    search(fused(leg, works()), "query")
    assert time.perf_counter() - began < 30  # all retries take hours
    assert 2 <= len(flaky.calls) <= 4


def test_a_leg_without_time_for_a_retry_fails_at_once(fused: Composite, search: Search) -> None:
    leg = Leg("broken", down(), retries=3, backoff_s=600, timeout_s=60)
    with soon():
        result = search(fused(leg, works()), "query")
    assert [part.reason for part in result.degraded] == ["ConnectionError: backend down"]


@cases("error", CALLER_ERRORS)
def test_an_error_of_the_caller_is_raised_without_a_retry(
    fused: Composite, search: Search, error: Exception
) -> None:
    leg = FakeRetriever(error=error)
    inner = fused(Leg("mistaken", leg, retries=3, backoff_s=0.0), works())
    with pytest.raises(type(error)) as caught:
        search(fused(inner, works()), "query")
    assert caught.value is error
    assert len(leg.calls) == 1


def test_the_circuit_breaker_opens_for_a_leg_that_keeps_failing(
    fused: Composite, search: Search
) -> None:
    retriever = down()
    leg = Leg("broken", retriever, breaker=CircuitBreaker(failures=2, reset_s=60))
    composite = fused(leg, works())
    for _ in range(4):
        result = search(composite, "query")
        assert node_ids(result.hits) == ["a"]
    assert len(retriever.calls) == 2
    assert result.degraded[0].reason.startswith("CircuitOpenError: left alone after 2 failures")


def test_the_circuit_breaker_closes_when_the_leg_answers_again(fused: Composite) -> None:
    now = [0.0]
    flaky = FlakyRetriever([("b", 0.4)], failures=2)
    breaker = CircuitBreaker(failures=2, reset_s=60, clock=lambda: now[0])
    composite = fused(Leg("flaky", flaky, breaker=breaker), works())
    answers = []
    for now[0] in (0, 1, 2, 70, 71):
        answers.append(node_ids(composite.retrieve("query")))
    assert answers == [["a"], ["a"], ["a"], ["a", "b"], ["a", "b"]]
    assert len(flaky.calls) == 4
    assert not breaker.is_open


def test_a_late_leg_opens_the_circuit_breaker(
    fused: Composite, hanging: Callable[[], HangingRetriever]
) -> None:
    late = hanging()
    leg = Leg("late", late, timeout_s=0.2, breaker=CircuitBreaker(failures=1))
    composite = fused(leg, works())
    for _ in range(2):
        assert node_ids(composite.retrieve("query")) == ["a"]
    assert len(late.calls) == 1
    assert leg.breaker.is_open


def test_an_open_circuit_breaker_of_a_required_leg_ends_the_query(fused: Composite) -> None:
    breaker = CircuitBreaker(failures=1)
    breaker.failed()
    with pytest.raises(CircuitOpenError):
        fused(Leg("broken", down(), required=True, breaker=breaker), works()).retrieve("query")


@pytest.mark.slow
@unless_stalled
def test_a_short_timeout_of_the_query_does_not_open_the_circuit_breaker(
    fused: Composite, hanging: Callable[[], HangingRetriever]
) -> None:
    leg = Leg("slow", hanging(), breaker=CircuitBreaker(failures=1))
    result = fused(leg, works()).search("query", timeout_s=0.5)
    assert [part.where for part in result.degraded] == ["slow"]
    assert not leg.breaker.is_open


def test_an_error_of_the_caller_does_not_open_the_circuit_breaker(fused: Composite) -> None:
    leg = Leg("mistaken", FakeRetriever(error=CALLER_ERRORS[1]), breaker=CircuitBreaker(failures=1))
    with pytest.raises(ConfigurationError):
        fused(leg, works()).retrieve("query")
    assert not leg.breaker.is_open


def test_an_open_circuit_breaker_of_a_child_does_not_open_that_of_the_leg(fused: Composite) -> None:
    breaker = CircuitBreaker(failures=1)
    breaker.failed()
    inner = fused(Leg("broken", down(), required=True, breaker=breaker))
    leg = Leg("inner", inner, breaker=CircuitBreaker(failures=1), retries=5, backoff_s=60)
    assert node_ids(fused(leg, works()).retrieve("query")) == ["a"]
    assert not leg.breaker.is_open


@cases(
    ("wrong", "message"),
    [
        ({"name": ""}, "name"),
        ({"weight": -0.1}, r"Leg\('leg'\): weight must be"),
        ({"weight": float("nan")}, "weight"),
        ({"weight": float("inf")}, "weight"),
        ({"timeout_s": 0}, r"Leg\('leg'\): timeout_s"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"timeout_s": float("inf")}, "leave it out"),
        ({"retries": -1}, "retries"),
        ({"backoff_s": -1}, "backoff_s"),
        ({"top_k": 0}, "top_k"),
    ],
)
def test_a_leg_refuses_impossible_arguments(wrong: dict[str, float | str], message: str) -> None:
    options: dict[str, object] = {"name": "leg", **wrong}
    with pytest.raises(ConfigurationError, match=message):
        Leg(retriever=works(), **options)  # type: ignore[arg-type]


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


def test_a_success_resets_the_failures_of_a_breaker(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    breaker.succeeded()
    fail(breaker, 2)
    assert not is_refused(breaker)


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


@cases(("failures", "reset_s"), [(0, 1.0), (1, 0.0), (1, -1.0)])
def test_a_breaker_refuses_impossible_arguments(failures: int, reset_s: float) -> None:
    with pytest.raises(ConfigurationError, match=r"failures must|reset_s must"):
        CircuitBreaker(failures=failures, reset_s=reset_s)


def test_a_min_success_above_the_number_of_legs_means_all(fused: Composite) -> None:
    assert fused(works(), works(), min_success=9).retrieve("query")
