"""How alike two texts are by their words."""

from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.near_duplicates import first_of_alike, shingles

SETS = st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=6), max_size=12)


def test_stop_words_and_endings_count() -> None:
    assert shingles("the days") != shingles("a day")


@given(SETS, st.floats(min_value=0.01, max_value=1.0))
def test_the_answer_is_that_of_comparing_every_pair(
    sets: list[frozenset[str]], at_least: float
) -> None:
    kept: list[frozenset[str]] = []
    expected: list[bool] = []
    for current in sets:
        alike = any(
            current & other and len(current & other) >= at_least * len(current | other)
            for other in kept
        )
        expected.append(not alike)
        if not alike:
            kept.append(current)
    assert list(first_of_alike(sets, at_least=at_least)) == expected
