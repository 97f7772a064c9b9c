"""No text takes more than linear time, whatever reads it."""

import pytest

from tests.linear_time import ATOMS, FRAMES, FUNCTIONS, LARGE, SMALL, seconds, text_of, worst

# Four times the text takes four times as long, or sixteen times if the time is quadratic. What
# takes less than the floor is not compared: it would be noise.
_MOST_GROWTH = 9
_FLOOR_S = 0.2
_LIMIT_S = 1.0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_short_hostile_text_takes_no_time(name: str) -> None:
    taken, text = worst(name, 5_000, 0.5)
    assert taken < 0.5, text


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_time_is_linear_in_the_text(name: str) -> None:
    for atom in ATOMS:
        for frame in FRAMES:
            small = seconds(FUNCTIONS[name], text_of(atom, SMALL, frame))
            assert small < _LIMIT_S, (atom, frame)
            large = seconds(FUNCTIONS[name], text_of(atom, LARGE, frame))
            assert large < max(_LIMIT_S, 0), (atom, frame)
            assert large < max(_FLOOR_S, _MOST_GROWTH * small), (atom, frame, small)
