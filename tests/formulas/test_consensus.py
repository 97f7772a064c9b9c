import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.consensus import in_at_least

RANKINGS = [["a", "b", "c"], ["b", "c"], ["c", "d"]]


@pytest.mark.parametrize(
    ("at_least", "expected"), [(1, {"a", "b", "c", "d"}), (2, {"b", "c"}), (3, {"c"}), (4, set())]
)
def test_ids_in_enough_rankings_remain(at_least: int, expected: set[str]) -> None:
    assert in_at_least(RANKINGS, at_least=at_least) == expected


def test_a_repeated_id_counts_once_in_its_ranking() -> None:
    assert in_at_least([["a", "a"], ["b"]], at_least=2) == set()


def test_nothing_gives_nothing() -> None:
    assert in_at_least([], at_least=1) == set()


def test_less_than_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at_least must be at least 1, got 0"):
        in_at_least(RANKINGS, at_least=0)
