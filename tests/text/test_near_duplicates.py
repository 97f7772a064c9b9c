"""How alike two texts are by their words."""

from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.near_duplicates import first_of_alike, shingles

SETS = st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=6), max_size=12)


def test_stop_words_and_endings_count() -> None:
    assert shingles("the days") != shingles("a day")


@given(SETS, st.floats(min_value=0.01, max_value=1.0))
def test_near_duplicates_are_those_of_comparing_every_pair(
    sets: list[frozenset[str]], at_least: float
) -> None:
    kept: list[int] = []
    expected: list[int] = []
    for number, current in enumerate(sets):
        alike = (
            place
            for place in kept
            if current & sets[place]
            and len(current & sets[place]) >= at_least * len(current | sets[place])
        )
        first = next(alike, number)
        expected.append(first)
        if first == number:
            kept.append(number)
    assert list(first_of_alike(sets, at_least=at_least)) == expected
