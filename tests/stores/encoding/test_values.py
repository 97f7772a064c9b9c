"""Numbers as terms keep the order and the equality of numbers."""

from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.stores.encoding.values import number_term

floats = st.floats(allow_nan=False)
whole = st.integers(-(2**200), 2**200)
numbers = st.one_of(floats, whole, st.integers(-20, 20), whole.map(float))


@given(first=numbers, second=numbers)
def test_terms_compare_as_numbers_do(first: float, second: float) -> None:
    assert (number_term(first) < number_term(second)) is (first < second)
    assert (number_term(first) == number_term(second)) is (first == second)


@given(number=whole)
def test_neighbours_among_whole_numbers_stay_apart(number: int) -> None:
    assert number_term(number) < number_term(number + 1)


def test_terms_are_short() -> None:
    assert max(len(number_term(each)) for each in (1e308, -5e-324, 2**1023 + 1, 0.1)) < 300
