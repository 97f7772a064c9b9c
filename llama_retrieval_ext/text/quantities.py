"""Numbers in texts as values: digits, English words, Chinese numerals, percentages and dates."""
# ruff: noqa: RUF001 - Chinese numerals and typographic signs on purpose

import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Final, TypeAlias

from llama_retrieval_ext.text.normalization import normal, simplified

# A number, or the text of one that is none, such as a version.
Value: TypeAlias = Fraction | str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in a text.

    Attributes:
        text: The number as it is written there.
        readings: What it may mean: 1.200 is 1.2 or 1200, and 1/3 a third or the numbers 1 and 3.
        is_exact: Whether the text counts or measures with it; not the "one" in "one of them".
    """

    text: str
    readings: tuple[frozenset[Value], ...]
    is_exact: bool = True

    def is_among(self, values: AbstractSet[Value]) -> bool:
        """Return whether one reading is among the values of another text."""
        return any(reading <= values for reading in self.readings)


_ONES: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "eighth", "ninth", "twelfth")
_ENGLISH: Final = {
    **{word: value for value, word in enumerate(_ONES)},
    **{f"{word}th": value for value, word in enumerate(_ONES)},
    **dict(zip(_ORDINALS, (1, 2, 3, 4, 5, 8, 9, 12), strict=True)),
    **{word: 10 * value for value, word in enumerate(_TENS, 2)},
    **{f"{word[:-1]}ieth": 10 * value for value, word in enumerate(_TENS, 2)},
}
_SCALES: Final = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_SHARES: Final = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fifth": 5, "tenth": 10}
_MONTHS: Final = (
    *("jan(?:uary)?", "feb(?:ruary)?", "mar(?:ch)?", "apr(?:il)?", "may", "june?", "july?"),
    *("aug(?:ust)?", "sept?(?:ember)?", "oct(?:ober)?", "nov(?:ember)?", "dec(?:ember)?"),
)
_CHINESE: Final = {
    **{digit: value for value, digit in enumerate("零一二三四五六七八九")},
    **{digit: value for value, digit in enumerate("〇壹贰叁肆伍陆柒捌玖")},
    "两": 2,
}
_UNITS: Final = {"十": 10, "百": 100, "千": 1000, "拾": 10, "佰": 100, "仟": 1000}
_MYRIADS: Final = {"万": 10**4, "亿": 10**8}
_LONGEST: Final = 30

_WORD: Final = "|".join(sorted({*_ENGLISH, *_SCALES}, key=len, reverse=True))
_SCALE: Final = "|".join(_SCALES)
_MONTH: Final = "|".join(f"(?P<m{number}>{name})" for number, name in enumerate(_MONTHS, 1))
_NUMBER: Final = r"\d+(?:[.,'’]\d+)*"
_HAN_DIGIT: Final = "".join(_CHINESE)
_HAN_UNIT: Final = "".join([*_UNITS, *_MYRIADS])
_HAN: Final = (
    rf"(?:[{_HAN_DIGIT}{_HAN_UNIT}]{{1,{_LONGEST}}}"
    rf"(?:点[{_HAN_DIGIT}]{{1,{_LONGEST}}}(?![{_HAN_UNIT}分]))?)"
)
_MIXED: Final = (
    rf"(?:{_NUMBER}(?:[{_HAN_UNIT}](?![米克瓦帕焦伏赫卡]))"
    rf"(?:[\d{_HAN_DIGIT}{_HAN_UNIT}]{{0,{_LONGEST}}}))"
)
_ANY: Final = rf"(?:{_MIXED}|{_NUMBER}|{_HAN})"
_QUANTITY: Final = re.compile(
    rf"(?P<denominator>{_ANY})分之(?P<numerator>{_ANY})"
    rf"|(?P<ratio>(?<![\d/])\d{{1,9}}/\d{{1,9}}(?![\d/]))"
    rf"|(?P<mixed>{_MIXED})"
    rf"|(?P<number>{_NUMBER}(?: \d{{3}}(?!\d))*)(?:[\s-]?(?P<scale>{_SCALE})\b|(?P<kilo>[kK])\b)?"
    rf"(?:\s?(?:%|％|percent\b|per cent\b)(?P<percent>))?"
    r"|(?P<share>(?<![a-zA-Z])(?:(?:a|one|two|three|four)[\s-])?"
    rf"(?:{'|'.join(_SHARES)})s?(?![a-zA-Z])|一半|半数)"
    rf"|(?P<words>(?<![a-zA-Z])(?:{_WORD})"
    rf"(?:(?:[\s-]+|[\s-]+and[\s-]+)(?:{_WORD})){{0,12}}(?![a-zA-Z]))"
    rf"|(?<![a-zA-Z])(?P<month>{_MONTH})(?![a-zA-Z])"
    rf"|(?P<han>第?{_HAN})",
    re.IGNORECASE,
)
# Words with a numeral that count nothing.
_NO_NUMBER: Final = re.compile(
    r"(?<!分之)(?<=[统唯之万单同任某每逐另进])一|一(?=[般些样定起直切旦致律贯同并边面步时向经下味者再度])"
    r"|十(?=分(?![之钟制]))|千万(?=[不要别])|百(?=姓)|万一|一一|四(?=川)|三(?=明治)"
)
# What follows a small number that measures or counts; "three ways" may be the writer's own count.
_MEASURED: Final = re.compile(
    r"[\s-]*(?:个?(?:[天日号月年周岁秒米尺里吨斤克升元块角度层楼页章条款名人位次台套件级倍成折届期座栋辆]"
    r"|小时|分钟?|星期|季度|工作日|厘米|毫米|公里|公斤|千[米克瓦]|平方|立方|摄氏|百分点|美元|欧元)"
    r"|点(?![要意建原内说理特优缺])"
    r"|(?:working |calendar |business |square |cubic )?"
    r"(?:days?|nights?|weeks?|fortnights?|months?|quarters?|years?|hours?|minutes?|seconds?|times"
    r"|(?:kilo|centi|milli)?(?:met(?:re|er)s?|grams?|grammes?|lit(?:re|er)s?)|tons?|tonnes?|miles?"
    r"|feet|inch(?:es)?|pounds?|kg|km|cm|mm|m|percent|per cent|degrees?|euros?|dollars?|yuan|cents?"
    r"|people|persons?|employees?|workers?|points?|pages?|o'clock|%|℃|°)(?![a-zA-Z]))",
    re.IGNORECASE,
)
_NAMED: Final = re.compile(
    r"(?:article|chapter|section|clause|step|page|no\.|number)\s+\Z", re.IGNORECASE
)
_GROUPED: Final = re.compile(r"[1-9]\d{0,2}(?:([,.'’ ])\d{3})(?:\1\d{3})*|[1-9]\d?(?:,\d\d)+,\d{3}")
_DATE: Final = re.compile(r"\d{1,2}\.\d{1,2}\.(?:\d\d){1,2}|\d{4}\.\d{1,2}\.\d{1,2}")
_DECIMAL: Final = re.compile(r"(.*?)(?:([.,])(\d*))?\Z")
_DAY_AFTER: Final = re.compile(r"\.?,? \d")
_DAY_BEFORE: Final = re.compile(r"\d(?:st|nd|rd|th)?(?: of)? \Z")
_PART: Final = re.compile(rf"([零〇]*)({_NUMBER}|[{_HAN_DIGIT}])?([{_HAN_UNIT}])?")
_UNITED: Final = re.compile(
    rf"(?:[零〇]*(?:{_NUMBER}|[{_HAN_DIGIT}])?[{_HAN_UNIT}])+[零〇]*(?:{_NUMBER}|[{_HAN_DIGIT}])?"
)
_SMALL: Final = 10


def quantities(text: str) -> list[Quantity]:
    """Return the numbers in a text, in order; a date gives its day, month and year.

    Examples:
        >>> [[*map(str, *each.readings)] for each in quantities("twenty-five 二十五 3万元 5%")[:3]]
        [['25'], ['25'], ['30000']]

    """
    return list(_quantities(simplified(normal(text))))


def values(text: str) -> set[Value]:
    """Return every value that the numbers of a text may have.

    Examples:
        >>> sorted(map(int, values("五月四日")))
        [4, 5]

    """
    return {value for found in quantities(text) for reading in found.readings for value in reading}


def _quantities(text: str) -> Iterator[Quantity]:
    text = _NO_NUMBER.sub(lambda word: "\0" * len(word[0]), text)
    for match in _QUANTITY.finditer(text):
        kind = next(kind for kind in _KINDS if match[kind])
        yield from _KINDS[kind](match)


def _percentage(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield a fraction; 百分之五 may mean 5 (per cent) or 5/100."""
    denominator, numerator = _chinese(match["denominator"]), _chinese(match["numerator"])
    if denominator and numerator is not None:
        share = _only(numerator / denominator)
        is_rate = denominator in {100, 1000, 10_000}
        yield Quantity(match[0], (share, _only(numerator)) if is_rate else (share,))


def _ratio(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield what may be a fraction, or a day and a month."""
    above, below = map(int, match[0].split("/"))
    share = [_only(Fraction(above, below))] if below else []
    yield Quantity(match[0], (_only(Fraction(above), Fraction(below)), *share))


def _mixed(match: re.Match[str]) -> Iterator[Quantity]:
    value = _chinese(match[0])
    if value is not None:
        yield Quantity(match[0], (_only(value),))


def _words(match: re.Match[str]) -> Iterator[Quantity]:
    value, before = _english(match[0]), max(0, match.start() - 12)
    is_large = value > _SMALL or match[0].lower() in _SCALES
    is_named = _NAMED.search(match.string, before, match.start()) is not None
    is_measured = _MEASURED.match(match.string, match.end()) is not None
    is_exact = value != 1 and (is_large or is_named or is_measured)
    yield Quantity(match[0], (_only(Fraction(value)),), is_exact)


def _month(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield the number of a month that stands beside a day or a year."""
    number = next(number for number in range(1, 13) if match[f"m{number}"])
    after = match.string[match.end() : match.end() + 4]
    before = match.string[max(0, match.start() - 8) : match.start()]
    is_dated = _DAY_AFTER.match(after) or _DAY_BEFORE.search(before)
    if is_dated and match[0][0].isupper():
        yield Quantity(match[0], (_only(Fraction(number)),))


def _number(match: re.Match[str]) -> Iterator[Quantity]:
    yield Quantity(match[0], tuple(_readings(match)))


def _share(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield a half, two thirds; a third alone is also an ordinal."""
    *count, name = re.findall("[a-z]+", match[0].lower()) or ["half"]
    below = next(number for share, number in _SHARES.items() if name.startswith(share))
    readings = [_only(Fraction(_ENGLISH.get("".join(count), 1), below))]
    if not count:
        readings.append(_only(Fraction(below)))
    yield Quantity(match[0], tuple(readings), is_exact=bool(count) and count != ["a"])


def _numerals(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield a Chinese numeral; of 三五天, both numbers."""
    numeral = match[0].removeprefix("第")
    digits = [_CHINESE[sign] for sign in numeral if sign in _CHINESE]
    if len(digits) == len(numeral) and len(digits) in {2, 3} and not {"零", "〇"} & {*numeral}:
        for digit in digits:
            yield Quantity(match[0], (_only(Fraction(digit)),), is_exact=False)
        return
    value = _chinese(numeral) if digits or numeral[0] in "十拾" else None  # 百姓, 千米
    if value is None:
        return
    following = match.string[match.end() : match.end() + 1]
    is_measured = _MEASURED.match(match.string, match.end()) is not None
    counts = is_measured and (value != 1 or following in "天年月米日元")
    readings = [_only(value)]
    if numeral.endswith("千") and following and following in "米克瓦帕":
        readings.append(_only(value / 1000))
    is_exact = match[0] != numeral or value > _SMALL or counts
    yield Quantity(match[0], tuple(readings), is_exact)


# What reads each kind of number, by its group of the pattern.
_KINDS: Final[Mapping[str, Callable[[re.Match[str]], Iterator[Quantity]]]] = {
    "denominator": _percentage,
    "ratio": _ratio,
    "mixed": _mixed,
    "number": _number,
    "share": _share,
    "words": _words,
    "month": _month,
    "han": _numerals,
}


def _readings(match: re.Match[str]) -> Iterator[frozenset[Value]]:
    number = match["number"]
    scale = _SCALES[match["scale"].lower()] if match["scale"] else 1000 if match["kilo"] else 1
    if scale == 1 and match["percent"] is None:
        yield from _plain(number)
        return
    for reading in _plain(number):
        scaled = frozenset(v * scale if isinstance(v, Fraction) else v for v in reading)
        yield scaled
        if match["percent"] is not None:
            yield frozenset(v / 100 if isinstance(v, Fraction) else v for v in reading)


@lru_cache(maxsize=1024)
def _plain(number: str) -> tuple[frozenset[Value], ...]:
    """Return what a number in digits may mean."""
    return tuple(_plain_readings(number))


def _plain_readings(number: str) -> Iterator[frozenset[Value]]:
    if _DATE.fullmatch(number):
        yield _only(*map(_whole, number.split(".")))
        return
    head, mark, tail = _DECIMAL.match(number).groups()  # type: ignore[union-attr]  # all match
    grouped = _GROUPED.fullmatch(number)
    if grouped:
        yield _only(_whole(re.sub(r"\D", "", number)))
    if mark and mark not in head and (head.isdecimal() or _GROUPED.fullmatch(head)):
        if not (grouped and mark == ","):  # 1,200 is no 1.2, but 1.200 may be 1200
            digits = re.sub(r"\D", "", head)[:_LONGEST]
            yield _only(Fraction(f"{digits}.{tail[:_LONGEST]}"))
    elif " " in number:
        yield _only(*map(_whole, number.split()))
    elif not grouped:
        yield _only(_whole(number))


def _whole(digits: str) -> Value:
    return Fraction(digits) if digits.isdecimal() and len(digits) <= _LONGEST else digits


def _only(*numbers: Value) -> frozenset[Value]:
    return frozenset(numbers)


def _english(words: str) -> int:
    total = section = 0
    for word in re.findall("[a-z]+", words.lower()):
        scale = _SCALES.get(word)
        if scale is None:
            section += _ENGLISH.get(word, 0)
        elif scale <= _SCALES["hundred"]:
            section = max(section, 1) * scale
        else:
            total, section = total + max(section, 1) * scale, 0
    return total + section


def _chinese(numeral: str) -> Fraction | None:
    """Return the value of a Chinese numeral, perhaps with digits; None if it is none."""
    whole, _, decimals = numeral.partition("点")
    if decimals:
        before = _chinese(whole)
        places = "".join(str(_CHINESE[digit]) for digit in decimals)
        return None if before is None else before + Fraction(f"0.{places}")
    if all(sign in _CHINESE for sign in numeral):
        return Fraction(reduce(lambda number, sign: 10 * number + _CHINESE[sign], numeral, 0))
    if re.fullmatch(_NUMBER, numeral):
        return _amount(numeral)
    return _with_units(numeral) if _UNITED.fullmatch(numeral) else None


def _with_units(numeral: str) -> Fraction:
    total = section = Fraction(0)
    before = 1
    for zeros, digits, unit in _PART.findall(numeral):
        amount = _amount(digits)
        if unit in _UNITS:
            section += (amount if digits else 1) * _UNITS[unit]
        elif unit == "亿":
            total, section = (total + section + amount) * _MYRIADS[unit], Fraction(0)
        elif unit:
            total, section = total + (section + amount) * _MYRIADS[unit], Fraction(0)
        elif amount < _SMALL < before and not zeros:  # 一百二 is 120
            section += amount * before / 10
        else:
            section += amount
        before = {**_UNITS, **_MYRIADS}.get(unit, 1)
    return total + section


def _amount(digits: str) -> Fraction:
    if digits in _CHINESE:
        return Fraction(_CHINESE[digits])
    values = _plain(digits)[0] if digits else frozenset()
    return next((value for value in values if isinstance(value, Fraction)), Fraction(0))
