"""No text and no list takes more than linear time, whatever reads it."""

import pytest

from tests.linear_time import FUNCTIONS, LISTS, seconds, slowest, text_of

# Four times the text takes four times as long, or sixteen times if the time is quadratic. What
# takes less than the floor is not compared: it would be noise.
_MOST_GROWTH = 9
_FLOOR_S = 0.2
# For 40,000 characters; half a second on a machine that does nothing else, one on a busy one.
_LIMIT_S = 2.0


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_hostile_texts_take_linear_time(name: str) -> None:
    for atom, frame in slowest(name):
        large, small = (
            seconds(FUNCTIONS[name], text_of(atom, length, frame)) for length in (40_000, 10_000)
        )
        assert large < max(_FLOOR_S, _MOST_GROWTH * small), (atom, frame, small, large)
        assert large < _LIMIT_S, (atom, frame, large)


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTS)
def test_long_lists_take_linear_time(name: str) -> None:
    large, small = (seconds(LISTS[name], count) for count in (40_000, 10_000))
    assert large < max(_FLOOR_S, _MOST_GROWTH * small), (small, large)
    assert large < _LIMIT_S, large
