"""What the quick run leaves out exists: a file that moved would be run again."""

import pytest

from tests.quick import SLOW_PLACES


def test_slow_places_exist(pytestconfig: pytest.Config) -> None:
    files = [place.partition("::")[0] for place in SLOW_PLACES]
    assert [each for each in files if not (pytestconfig.rootpath / each).exists()] == []
