"""Numbers as strings that sort as the numbers do, and equal each other when the numbers do."""

import math
from typing import Final

# Below the smallest exponent of a float, -1074.
_OFFSET: Final = 2000
_DIGITS: Final = 4
_MOST: Final = 1024  # filters hold nothing of 2**1024 or more: all of that is one
_COMPLEMENT: Final = str.maketrans("0123456789abcdef", "fedcba9876543210")
_ZERO: Final = "b"
_ENDLESS: Final = {1: "cg", -1: "a "}


def number_term(number: float) -> str:
    """A string for a number; NaN is none.

    Whole numbers and those with a fraction stand in one order, with no loss: sign, exponent, digits
    of the mantissa in base 16. A negative number has the digits of the positive one turned round.

    Args:
        number: Not NaN. From 2**1024 on, all are as infinity.

    Examples:
        >>> number_term(3) == number_term(3.0) != number_term(2**53 + 1) != number_term(2**53)
        True
        >>> numbers = [-math.inf, -(2**70), -3, -2.5, -1e-300, 0, 5e-324, 0.1, 2, 2**53 + 1, 1e300]
        >>> sorted(numbers[::-1], key=number_term) == numbers
        True

    """
    if number == 0:
        return _ZERO
    sign = 1 if number > 0 else -1
    if isinstance(number, float) and math.isinf(number):
        return _ENDLESS[sign]
    numerator, denominator = abs(number).as_integer_ratio()
    # The denominator of a float is a power of two.
    exponent = numerator.bit_length() - denominator.bit_length()
    if exponent >= _MOST:
        return _ENDLESS[sign]
    told = f"{exponent + _OFFSET:0{_DIGITS}x}{_mantissa(numerator)}"
    # "~" after every digit: of two negative numbers the one with more digits is the smaller.
    return f"c{told}" if sign > 0 else f"a{told.translate(_COMPLEMENT)}~"


def _mantissa(numerator: int) -> str:
    """The binary digits behind the first, in base 16, without zeros at the end."""
    bits = numerator.bit_length() - 1
    fraction = numerator - (1 << bits)
    pad = -bits % 4
    digits = (bits + pad) // 4
    return f"{fraction << pad:0{digits}x}".rstrip("0") if digits else ""
