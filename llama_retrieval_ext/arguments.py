"""Checks of arguments, for those who have no type checker: once, where they come in."""

import math
import sys
from enum import Enum
from typing import TypeVar

from llama_retrieval_ext.errors import ConfigurationError

T = TypeVar("T")


def of_type(value: T, kind: type[object], what: str, *, instead: str = "") -> T:
    """The same value, if it is what it has to be.

    Args:
        value: What was given.
        kind: Its class, or a base of it.
        what: What the argument is called.
        instead: What to write; for an enumeration its members are told.

    Raises:
        ConfigurationError: It is something else.

    Examples:
        >>> of_type("leave", str, "name")
        'leave'

    """
    if isinstance(value, kind):
        return value
    if issubclass(kind, Enum):
        instead = f"write one of {', '.join(map(str, kind))}"
    advice = f"; {instead}" if instead else ""
    raise ConfigurationError(f"{what} must be of type {kind.__name__}, got {value!r}{advice}")


def is_number(value: object) -> bool:
    """Whether it is a finite number; True and False are none.

    Examples:
        >>> is_number(0.5), is_number("0.5"), is_number(math.nan)
        (True, False, False)

    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def check_count(count: int, what: str, *, least: int = 1) -> int:
    """The same number, if it can count something.

    Args:
        count: The number.
        what: What the argument is called.
        least: The smallest it can be.

    Raises:
        ConfigurationError: It is below that, beyond what a machine counts, or not a whole number.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < least:
        raise ConfigurationError(
            f"{what} must be a whole number of at least {least}, got {count!r}"
        )
    if count > sys.maxsize:  # no engine, and no list, counts so far
        raise ConfigurationError(f"{what} must be at most {sys.maxsize}, got {count}")
    return count


def check_seconds(seconds: float, what: str, *, otherwise: str = "") -> float:
    """The same number, if it can be a time limit.

    Args:
        seconds: The number.
        what: What the argument is called.
        otherwise: What to write for no limit.

    Raises:
        ConfigurationError: It is not a positive, finite number.
    """
    if not is_number(seconds) or seconds <= 0:
        advice = f"; {otherwise}" if otherwise else ""
        raise ConfigurationError(
            f"{what} must be a positive number of seconds, got {seconds!r}{advice}"
        )
    return seconds
