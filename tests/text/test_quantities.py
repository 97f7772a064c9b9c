"""Numbers as values: what a text may mean, in linear time."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.quantities import quantities, values

SIGNS = "0123456789一二十百千万亿零点第分之,. '%/天个kMay one hundredtwenty-"


@given(st.text(st.sampled_from(SIGNS)) | st.text())
def test_every_text_has_values_that_include_those_it_states(text: str) -> None:
    known = values(text)
    assert all(quantity.is_among(known) for quantity in quantities(text) if quantity.readings)


@given(st.integers(0, 10**12 - 1))
def test_a_chinese_numeral_has_the_value_of_its_digits(number: int) -> None:
    assert values(f"{_chinese(number)}元") >= {Fraction(number)}


@pytest.mark.parametrize(
    "unit", ["1", "一", "百", "1,", "1.", "three ", "1/", "二百分之", "5万", "May 1 "]
)
@pytest.mark.slow
def test_hostile_texts_take_linear_time(unit: str) -> None:
    assert len(quantities(unit * (20_000 // len(unit)))) <= 20_000


def _chinese(number: int) -> str:
    """The number in Chinese, with every unit and every zero written out."""
    if number < 10_000:
        digits = [int(digit) for digit in f"{number:04}"]
        written = "".join(
            f"{'零一二三四五六七八九'[digit]}{unit}" if digit else "零"
            for digit, unit in zip(digits, ("千", "百", "十", ""), strict=True)
        )
        return written.strip("零") or "零"
    unit = 10**8 if number >= 10**8 else 10**4
    below = number % unit
    tail = f"零{_chinese(below)}" if below else ""
    return f"{_chinese(number // unit)}{'亿' if unit == 10**8 else '万'}{tail}"
