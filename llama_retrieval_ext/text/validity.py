"""The dates between which a text says that it holds, by rules for English and Chinese."""

import re
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final, NamedTuple, TypeAlias

from llama_retrieval_ext.text.numerals import (
    ENGLISH,
    HAN_DIGIT,
    HAN_UNIT,
    MONTH_NAMES,
    chinese_value,
    english_value,
)
from llama_retrieval_ext.text.relative_dates import MONTH_STARTS, month_number

# The first day, and the first after the last.
_Days: TypeAlias = tuple[date, date]
_ENGLISH: Final = re.compile("|".join(MONTH_STARTS))
_MONTH: Final = rf"(?:{'|'.join(MONTH_NAMES)})\.?"
_DATE: Final = (
    rf"((?:\d{{4}}|[{HAN_DIGIT}]{{4}})\s?年\s?[\d十{HAN_DIGIT}]{{1,3}}\s?月(?:\s?[\d十{HAN_DIGIT}]{{1,3}}\s?[日号])?"
    r"|\d{4}-\d{1,2}-\d{1,2}|\d{4}[./]\d{1,2}[./]\d{1,2}|\d{1,2}\.\d{1,2}\.\d{4}"
    rf"|(?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH},? \d{{4}}"
    rf"|{_MONTH}(?: \d{{1,2}}(?:st|nd|rd|th)?,?)? \d{{4}})(?!\d)"
)
_HOLDS: Final = r"(?:effective|valid|applicable|binding|in force|in effect|applies|apply)"
_SINCE: Final = "(?: date| with effect| starting| beginning| as of| as from| from| since| on|:)*"
_UNTIL: Final = "(?:until|till|up to|through|to)(?: and including)?"
_ENTERS: Final = (
    "(?:with effect|takes? effect|took effect|(?:comes?|came|enters?|entered) into (?:force|effect)"
    "|becomes? (?:effective|valid|binding))"
)
_LENGTH: Final = rf"(\d{{1,3}}|{'|'.join(ENGLISH)}) (day|week|month|year)s?"
_ENDED: Final = "(?:superseded|repealed|withdrawn|abolished|ceases? to (?:be valid|apply))"
_TAKES_EFFECT: Final = r"起?\s?(?:正式|开始|全面)?(?:施行|实施|生效|执行|启用|适用)(?!的)"
_PERIOD_ZH: Final = r"(?:有效|适用|执行|施行)期限?\s?[:\uff1a为是]?\s?[自从]?\s?"


def _rules(*rules: str) -> list[re.Pattern[str]]:
    return [re.compile(rule, re.IGNORECASE) for rule in rules]


_STARTS: Final = _rules(
    rf"\b(?:{_HOLDS}|{_ENTERS})(?: for (?:[\w-]+ ){{1,5}}?(?:from|as of))?{_SINCE} {_DATE}",
    rf"[自从于]\s?{_DATE}(?:之日)?{_TAKES_EFFECT}",
    rf"{_DATE}(?:之日)?起{_TAKES_EFFECT}",
    rf"(?:生效|施行|实施|执行)(?:日期|时间|日)\s?[:\uff1a为是]?\s?{_DATE}",
)
# The last day on which it holds.
_LAST_DAYS: Final = _rules(
    rf"\b{_HOLDS} {_UNTIL} {_DATE}",
    rf"\b(?:expires?|expired|expiry date)(?: on|:)? {_DATE}",
    rf"(?:有效期限?\s?[:\uff1a为是]?\s?|有效|执行|施行|适用|实施)[至到]\s?{_DATE}",
    rf"[至到]\s?{_DATE}(?:为?止|前有效|期满)(?!的)",
)
# The first day on which it no longer holds.
_ENDS: Final = _rules(
    rf"\b{_ENDED}{_SINCE} {_DATE}", rf"{_DATE}起?\s?(?:失效|废止|停止执行|停止使用|终止)(?!的)"
)
_RANGES: Final = _rules(
    rf"\b{_HOLDS}{_SINCE} {_DATE} ?(?:{_UNTIL}|-|\u2013) ?{_DATE}",
    rf"{_PERIOD_ZH}{_DATE}起?\s?[至到\u2014~-]+\s?{_DATE}",
    rf"[自从]\s?{_DATE}起?\s?[至到]\s?{_DATE}(?:为?止|有效|期满|施行|实施|执行|适用)(?!的)",
)
# How long it holds from its start.
_LENGTHS: Final = _rules(
    rf"\b{_HOLDS} for (?:a (?:period|term) of )?{_LENGTH}",
    rf"(?:有效|试行|施行)期限?\s?[:\uff1a为是]?\s?([\d{HAN_DIGIT}{HAN_UNIT}]{{1,4}})\s?(年|个?月|日|天)",
)


class Validity(NamedTuple):
    """The time for which a text holds.

    Attributes:
        start: The first day, in ISO 8601; None if the text does not say.
        end: The first day after it; None if it is open.
        words: The words that say so.
    """

    start: str | None
    end: str | None
    words: str


def validity_in(text: str) -> Validity | None:
    """Return the time for which a text says that it holds; None if it does not.

    Of several dates the latest counts: a text that was amended also names the dates before. "Until
    31 May" and 至5月31日止 include that day. "Until further notice" is an open end.

    Examples:
        >>> validity_in("本法自2021年9月1日起施行。")
        Validity(start='2021-09-01', end=None, words='自2021年9月1日起施行')
        >>> validity_in("Prices are valid from 1 May 2026 until 31 May 2026.")[:2]
        ('2026-05-01', '2026-06-01')

    """
    spaced = re.sub(r"\s", " ", text)
    ranges = _matches(_RANGES, spaced)
    starts = [(first, words) for ((first, _), *_), words in ranges] or [
        (first, words) for ((first, _),), words in _matches(_STARTS, spaced)
    ]
    ends = [(after, words) for (_, (_, after)), words in ranges]
    ends += [(after, words) for ((_, after),), words in _matches(_LAST_DAYS, spaced)]
    ends += [(first, words) for ((first, _),), words in _matches(_ENDS, spaced)]
    start, end = max(starts, default=None), max(ends, default=None)
    if start is not None and end is None:
        lengths = (match for rule in _LENGTHS for match in rule.finditer(spaced))
        ends = [(_later(start[0], *match.groups()), match[0]) for match in lengths]
        end = max(ends, default=None)
    if start is not None and end is not None and end[0] <= start[0]:
        end = None  # of an earlier version
    if start is None and end is None:
        return None
    words = dict.fromkeys(part[1] for part in (start, end) if part is not None)
    return Validity(
        None if start is None else start[0].isoformat(),
        None if end is None else end[0].isoformat(),
        "; ".join(words),
    )


def _matches(rules: Sequence[re.Pattern[str]], text: str) -> list[tuple[list[_Days], str]]:
    """Return the days of each match, if all are of the calendar, with its words."""
    matches = (match for rule in rules for match in rule.finditer(text))
    read = [([*map(_days, match.groups())], match[0]) for match in matches]
    return [([*filter(None, days)], words) for days, words in read if all(days)]


def _days(words: str) -> _Days | None:
    """Return the first day of a date or a month in words, and the first after it."""
    month = _ENGLISH.search(words.lower())
    if words[-1] in "日号月":
        parts = (part.strip() for part in re.split("[年月日号]", words))
        year, number, *day = (int(chinese_value(part) or 0) for part in parts if part)
    else:
        *day, year = map(int, re.findall(r"\d+", words))
        number = 0 if month is None else month_number(month[0])
        if month is None and len(words.partition(".")[0]) <= len("31"):  # 31.12.2026
            number = day.pop()
        elif month is None:
            year, number, *day = *day, year
    try:
        first = date(year, number, *(day or [1]))
        return first, first + timedelta(1) if day else (first + timedelta(31)).replace(day=1)
    except ValueError:
        return None
    except OverflowError:  # the end of 9999 stands for none
        return first, date.max


def _later(start: date, count: str, unit: str) -> date:
    """Return the day after a period from a start; the last one if there is none."""
    number = int(count) if count.isdecimal() else english_value(count) or chinese_value(count) or 0
    days = {"day": 1, "日": 1, "天": 1, "week": 7}.get(unit.lower(), 0)
    months = int(number) * (0 if days else 12 if unit.lower() in ("year", "年") else 1)
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    try:
        first = date(year, month + 1, 1)
        return first + timedelta(start.day - 1 + int(number) * days)
    except (ValueError, OverflowError):
        return date.max
