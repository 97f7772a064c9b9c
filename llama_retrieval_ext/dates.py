"""Dates in metadata and filters, compared by time, and the time for which something holds."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, TypeAlias

from llama_retrieval_ext.errors import ConfigurationError

# A point in time: a date or an instant, of Python or in ISO 8601.
Moment: TypeAlias = str | date
# Metadata and properties that say from when until when something holds, and from when until when
# the store knew it. The ends are exclusive; what lacks one is open on that side.
VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
KNOWN_FROM: Final = "known_from"
KNOWN_TO: Final = "known_to"
# The words of a text that its validity was read from.
VALIDITY_TEXT: Final = "validity_text"
TIME_KEYS: Final = (VALID_FROM, VALID_TO, KNOWN_FROM, KNOWN_TO)

_DATE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)"
    r"(?:[Tt ]((?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d)?)(?:(?<=:\d\d:\d\d)[.,](\d{1,9}))?"
    r"([Zz]|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?)?",
    re.ASCII,
)
_LONGEST: Final = len("2024-01-31T09:30:00.123456789+01:00")
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
    return _nanoseconds(text) if isinstance(text, str) and len(text) <= _LONGEST else None


@lru_cache(maxsize=4096)  # many nodes have the same dates
def _nanoseconds(text: str) -> int | None:
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    day, time, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{time or '00:00'}{(zone or 'Z').upper()}")
    except ValueError:  # such as 30 February
        return None
    seconds = (moment - _EPOCH) // _SECOND
    return seconds * NANOSECONDS + int((fraction or "").ljust(9, "0"))


def moment_of(value: object, name: str) -> str:
    """Return a date or an instant as `instant` reads it; "now" is the current time.

    Raises:
        ConfigurationError: It is neither, or has more than six digits after the second.

    Examples:
        >>> moment_of(date(2021, 9, 1), "as_of"), moment_of("2021-09-01T08:00+08:00", "as_of")
        ('2021-09-01', '2021-09-01T08:00+08:00')

    """
    if value == "now":
        return now()
    text = value.isoformat() if isinstance(value, date) else value
    nanoseconds = instant(text)
    if not isinstance(text, str) or nanoseconds is None or nanoseconds % 1000:
        raise ConfigurationError(
            f"{name} must be a date or an instant, such as '2021-09-01', "
            f"'2021-09-01T09:30:00+08:00', a date or datetime of Python, or 'now', got {value!r}"
        )
    return text


def now() -> str:
    """Return the current time, to the microsecond."""
    return datetime.now(UTC).isoformat()


def holds(metadata: Mapping[str, object], when: int) -> bool:
    """Return whether something with this metadata holds at an instant, in nanoseconds.

    Examples:
        >>> holds({"valid_to": "2021-09-01"}, instant("2021-08-31"))
        True

    """
    start, end = instant(metadata.get(VALID_FROM)), instant(metadata.get(VALID_TO))
    return (start is None or start <= when) and (end is None or when < end)


def validity_in_words(metadata: Mapping[str, object]) -> str:
    """Return that something no longer holds, or not yet; empty if it holds now.

    Examples:
        >>> validity_in_words({"valid_from": "2002-11-01", "valid_to": "2021-09-01"})
        'no longer valid since 2021-09-01'

    """
    if VALID_FROM not in metadata and VALID_TO not in metadata:
        return ""
    when = instant(now()) or 0
    if holds(metadata, when):
        return ""
    end = instant(metadata.get(VALID_TO))
    if end is not None and end <= when:
        return f"no longer valid since {metadata[VALID_TO]}"
    return f"not valid before {metadata[VALID_FROM]}"
