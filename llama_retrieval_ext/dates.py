"""Dates in metadata and filters, compared by time."""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final

_DATE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)"
    r"(?:[Tt ]((?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d)?)(?:(?<=:\d\d:\d\d)[.,](\d{1,9}))?"
    r"([Zz]|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?)?",
    re.ASCII,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
NANOSECONDS: Final = 10**9


def instant(value: object) -> int | None:
    """Return the nanoseconds from 1970 to a date, or None if it is no date.

    A date is a string in ISO 8601's extended form, ``2024-01-31`` or
    ``2024-01-31T09:30:00.5+01:00``, and a date of the calendar. It stands for an instant, to the
    nanosecond: a date is the start of its day, and without a zone the time is UTC.

    Examples:
        >>> instant("1970-01-01T01:00:00.5+01:00"), instant("1970-02-30"), instant("yesterday")
        (500000000, None, None)

    """
    text = value.isoformat() if isinstance(value, date) else value
    found = _DATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    day, time, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{time or '00:00'}{(zone or 'Z').upper()}")
    except ValueError:  # such as 30 February
        return None
    seconds = (moment - _EPOCH) // _SECOND
    return seconds * NANOSECONDS + int((fraction or "").ljust(9, "0"))


@lru_cache(maxsize=64)
def given_instant(value: str) -> int | None:
    """`instant` of a filter's value, which is compared with many fields."""
    return instant(value)
