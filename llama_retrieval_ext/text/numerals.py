"""Numerals as values: digits, English words, Chinese numerals."""
# ruff: noqa: RUF001 - typographic signs on purpose

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Final, TypeAlias

# A number, or the text of one that is none, such as a version.
Value: TypeAlias = Fraction | str

_ONES: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "eighth", "ninth", "twelfth")
ENGLISH: Final = {
    **{word: value for value, word in enumerate(_ONES)},
    **{f"{word}th": value for value, word in enumerate(_ONES)},
    **dict(zip(_ORDINALS, (1, 2, 3, 4, 5, 8, 9, 12), strict=True)),
    **{word: 10 * value for value, word in enumerate(TENS, 2)},
    **{f"{word[:-1]}ieth": 10 * value for value, word in enumerate(TENS, 2)},
    **{f"{word[:-1]}ies": 10 * value for value, word in enumerate(TENS, 2)},
    "couple": 2,
    "twice": 2,
}
SCALES: Final = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
CHINESE: Final = {
    **{digit: value for value, digit in enumerate("零一二三四五六七八九")},
    **{digit: value for value, digit in enumerate("〇壹贰叁肆伍陆柒捌玖")},
    "两": 2,
}
UNITS: Final = {"十": 10, "百": 100, "千": 1000, "拾": 10, "佰": 100, "仟": 1000}
MYRIADS: Final = {"万": 10**4, "亿": 10**8}
LONGEST: Final = 30

# The names of the months, in full and short, as patterns.
MONTH_NAMES: Final = (
    *("jan(?:uary)?", "feb(?:ruary)?", "mar(?:ch)?", "apr(?:il)?", "may", "june?", "july?"),
    *("aug(?:ust)?", "sept?(?:ember)?", "oct(?:ober)?", "nov(?:ember)?", "dec(?:ember)?"),
)
# A word of a number, as a pattern.
NUMBER_WORD: Final = "|".join(sorted({*ENGLISH, *SCALES}, key=len, reverse=True))
NUMBER: Final = r"\d+(?:[.,'’]\d+)*"
HAN_DIGIT: Final = "".join(CHINESE)
HAN_UNIT: Final = "".join([*UNITS, *MYRIADS])
_GROUPED: Final = re.compile(r"[1-9]\d{0,2}(?:([,.'’ ])\d{3})(?:\1\d{3})*|[1-9]\d?(?:,\d\d)+,\d{3}")
_DATE: Final = re.compile(r"\d{1,2}\.\d{1,2}\.(?:\d\d){1,2}|\d{4}\.\d{1,2}\.\d{1,2}")
_DECIMAL: Final = re.compile(r"(.*?)(?:([.,])(\d*))?\Z")
_PART: Final = re.compile(rf"([零〇]*)({NUMBER}|[{HAN_DIGIT}])?([{HAN_UNIT}])?")
_UNITED: Final = re.compile(
    rf"(?:[零〇]*(?:{NUMBER}|[{HAN_DIGIT}])?[{HAN_UNIT}])+[零〇]*(?:{NUMBER}|[{HAN_DIGIT}])?"
)
SMALL: Final = 10


def separate(words: str) -> Iterator[str]:
    """Yield the numbers in a run of number words: "ten and fifteen" are two."""
    start, last = 0, ""
    for word in re.finditer("[a-zA-Z]+", words):
        name = word[0].lower()
        is_first = last in {"", *SCALES} or name in SCALES
        is_tail = last in TENS and 0 < ENGLISH.get(name, 0) < SMALL
        if name == "and" and last in SCALES:
            continue
        if not (is_first or is_tail or name == "and"):
            yield words[start : word.start()].removesuffix("and ").rstrip(" -")
            start = word.start()
        last = name
    yield words[start:]


@lru_cache(maxsize=1024)
def readings_of(number: str) -> tuple[frozenset[Value], ...]:
    """Return what a number in digits may mean."""
    return tuple(_plain_readings(number))


def _plain_readings(number: str) -> Iterator[frozenset[Value]]:
    if _DATE.fullmatch(number):
        yield only(*map(whole, number.split(".")))
        return
    head, mark, tail = _DECIMAL.match(number).groups()  # type: ignore[union-attr]  # all match
    grouped = _GROUPED.fullmatch(number)
    if grouped:
        yield only(whole(re.sub(r"\D", "", number)))
    if mark and mark not in head and (head.isdecimal() or _GROUPED.fullmatch(head)):
        if not (grouped and mark == ","):  # 1,200 is no 1.2, but 1.200 may be 1200
            digits = re.sub(r"\D", "", head)[:LONGEST]
            yield only(Fraction(f"{digits}.{tail[:LONGEST]}"))
    elif " " in number:
        yield only(*map(whole, number.split()))
    elif not grouped:
        yield only(whole(number))


def whole(digits: str) -> Value:
    """Return digits as a number; as text if there are too many."""
    return Fraction(digits) if digits.isdecimal() and len(digits) <= LONGEST else digits


def only(*numbers: Value) -> frozenset[Value]:
    """Return a reading of these numbers."""
    return frozenset(numbers)


def english_value(words: str) -> int:
    """Return the value of English number words."""
    total = section = 0
    for word in re.findall("[a-z]+", words.lower()):
        scale = SCALES.get(word)
        if scale is None:
            section += ENGLISH.get(word, 0)
        elif scale <= SCALES["hundred"]:
            section = max(section, 1) * scale
        else:
            total, section = total + max(section, 1) * scale, 0
    return total + section


def chinese_value(numeral: str) -> Fraction | None:
    """Return the value of a Chinese numeral, perhaps with digits; None if it is none."""
    whole, _, decimals = numeral.partition("点")
    if decimals:
        before = chinese_value(whole)
        places = "".join(str(CHINESE[digit]) for digit in decimals)
        return None if before is None else before + Fraction(f"0.{places}")
    if all(sign in CHINESE for sign in numeral):
        return Fraction(reduce(lambda number, sign: 10 * number + CHINESE[sign], numeral, 0))
    if re.fullmatch(NUMBER, numeral):
        return _amount(numeral)
    return _with_units(numeral) if _UNITED.fullmatch(numeral) else None


def _with_units(numeral: str) -> Fraction:
    total = section = Fraction(0)
    before = 1
    for zeros, digits, unit in _PART.findall(numeral):
        amount = _amount(digits)
        if unit in UNITS:
            section += (amount if digits else 1) * UNITS[unit]
        elif unit == "亿":
            total, section = (total + section + amount) * MYRIADS[unit], Fraction(0)
        elif unit:
            total, section = total + (section + amount) * MYRIADS[unit], Fraction(0)
        elif amount < SMALL < before and not zeros:  # 一百二 is 120
            section += amount * before / 10
        else:
            section += amount
        before = {**UNITS, **MYRIADS}.get(unit, 1)
    return total + section


def _amount(digits: str) -> Fraction:
    if digits in CHINESE:
        return Fraction(CHINESE[digits])
    values = readings_of(digits)[0] if digits else frozenset()
    return next((value for value in values if isinstance(value, Fraction)), Fraction(0))
