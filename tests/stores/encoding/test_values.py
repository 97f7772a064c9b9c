"""Numbers as terms keep the order and the equality of numbers."""

from operator import ge, gt, le, lt

from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.stores.encoding.values import date_bound, number_term

DATES = ["2024-01-31", "1969-12-31T23:59:59.999999999Z", "2024-01-31T00:00:00.0000005"]
floats = st.floats(allow_nan=False)
numbers = st.one_of(floats, st.integers(-(2**53), 2**53), st.integers(-20, 20))


@given(first=numbers, second=numbers)
def test_terms_compare_as_numbers_do(first: float, second: float) -> None:
    assert (number_term(first) < number_term(second)) is (first < second)
    assert (number_term(first) == number_term(second)) is (first == second)


@given(moment=st.integers(-(2**60), 2**60), value=st.sampled_from(DATES))
def test_a_date_as_a_bound_compares_with_whole_microseconds(moment: int, value: str) -> None:
    exact = instant(value) or 0
    for bound, compare in (("gt", gt), ("gte", ge), ("lt", lt), ("lte", le)):
        assert compare(moment, date_bound(value, bound)) is compare(moment * 1000, exact)
