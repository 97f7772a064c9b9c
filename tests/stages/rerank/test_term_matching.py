"""How the words of a query match those of a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.stages.rerank.rules import coverage, longest_run

WORDS = st.lists(st.sampled_from("abc"), max_size=8)


def test_coverage_of_nothing_is_nothing() -> None:
    assert coverage(set(), {"a"}) == 0.0
    assert coverage({"a"}, set()) == 0.0


@pytest.mark.parametrize(
    ("wanted", "text", "run"),
    [("abc", "xabcx", 3), ("abc", "abxbc", 2), ("abc", "cba", 1), ("aab", "aaab", 3), ("", "a", 0)],
)
def test_a_run_is_as_long_as_the_words_stand_together(wanted: str, text: str, run: int) -> None:
    assert longest_run(list(wanted), list(text)) == run


@given(WORDS, WORDS)
def test_the_longest_run_is_the_longest_common_part(wanted: list[str], text: list[str]) -> None:
    parts = {
        tuple(wanted[start:end])
        for start in range(len(wanted))
        for end in range(start, len(wanted) + 1)
    }
    inside = [
        len(part)
        for part in parts
        if any(tuple(text[place : place + len(part)]) == part for place in range(len(text) + 1))
    ]
    assert longest_run(wanted, text) == max(inside, default=0)
