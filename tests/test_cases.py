"""Cases that share a test are all run, and those that fail are named."""

import asyncio
from threading import Barrier

import pytest

from tests.cases import each_case

SEEN: list[int] = []


@each_case("number", [1, 2, 3, 4], ids=str)
def odd(number: int, *, offset: int = 0) -> None:
    SEEN.append(number)
    assert (number + offset) % 2


@each_case(("first", "second"), {"equal": (1, 1), "not": (1, 2)}.values(), ids=["equal", "not"])
async def equal(first: int, second: int) -> None:
    assert first == second


def test_all_run_and_the_failure_names_each_that_failed() -> None:
    SEEN.clear()
    with pytest.raises(AssertionError) as failure:
        odd()
    assert SEEN == [1, 2, 3, 4]
    assert failure.value.__notes__ == ["case: 2", "and so fails case: 4"]
    with pytest.raises(AssertionError) as failure:
        asyncio.run(equal())
    assert failure.value.__notes__ == ["case: not"]


def test_cases_that_wait_do_so_side_by_side() -> None:
    barrier = Barrier(3)

    @each_case("number", [1, 2, 3], side_by_side=True)
    def meets(number: int) -> None:
        barrier.wait(60)
        assert number == 2

    with pytest.raises(AssertionError) as failure:
        meets()
    assert failure.value.__notes__ == ["case: 1", "and so fails case: 3"]


@each_case("text", ["a", "b"])
@each_case("times", [1, 2])
def test_two_kinds_of_cases_make_all_pairs_beside_fixtures(
    text: str, times: int, record_property: object
) -> None:
    assert record_property
    assert len(text * times) == times
