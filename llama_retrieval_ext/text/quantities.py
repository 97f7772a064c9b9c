"""Numbers in texts as values: digits, English words, Chinese numerals, percentages and dates."""
# ruff: noqa: RUF001 - Chinese numerals and typographic signs on purpose

import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final

from llama_retrieval_ext.text.normalization import normal, simplified
from llama_retrieval_ext.text.numerals import (
    CHINESE,
    ENGLISH,
    HAN_DIGIT,
    HAN_UNIT,
    LONGEST,
    MONTH_NAMES,
    NUMBER,
    NUMBER_WORD,
    SCALES,
    SMALL,
    Value,
    chinese_value,
    english_value,
    only,
    readings_of,
    separate,
    whole,
)


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


_SHORT_SCALES: Final = {"k": 10**3, "K": 10**3, "M": 10**6, "mn": 10**6, "bn": 10**9, "B": 10**9}
_ROMAN: Final = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_SHARES: Final = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fifth": 5, "tenth": 10}
_SCALE: Final = "|".join(SCALES)
_MONTH: Final = "|".join(f"(?P<m{number}>{name})" for number, name in enumerate(MONTH_NAMES, 1))
_HAN: Final = (
    rf"(?:[{HAN_DIGIT}{HAN_UNIT}]{{1,{LONGEST}}}"
    rf"(?:点[{HAN_DIGIT}]{{1,{LONGEST}}}(?![{HAN_UNIT}分]))?)"
)
_MIXED: Final = (
    rf"(?:{NUMBER}(?:[{HAN_UNIT}](?![米克瓦帕焦伏赫卡]))"
    rf"(?:[\d{HAN_DIGIT}{HAN_UNIT}]{{0,{LONGEST}}}))"
)
_ANY: Final = rf"(?:{_MIXED}|{NUMBER}|{_HAN})"
_TWO_DIGITS: Final = r"(?:\d{1,2}|[一二三四五六七八九十]{1,3})"
_HALVES: Final = {"年": 6, "月": 15, "小时": 30, "天": None, "日": None, "公里": 500, "斤": None}
_QUANTITY: Final = re.compile(
    rf"(?P<denominator>{_ANY})分之(?P<numerator>{_ANY})"
    rf"|(?P<ratio>(?<![\d/])(?:\d{{1,4}} )?\d{{1,9}}/\d{{1,9}}(?![\d/]))"
    r"|(?P<iso>(?<![\d.-])\d{4}-\d{1,2}-\d{1,2}(?![\d.-]))"
    rf"|(?P<date>(?<!\d){_TWO_DIGITS}月{_TWO_DIGITS}(?=[日号]))"
    r"|(?P<clock>(?:(?:下午|晚上|傍晚)\s?)?(?<![\d:])\d{1,2}:\d\d(?![\d:])(?:\s?[ap]\.?m\b)?"
    rf"|(?:下午|晚上|傍晚){_TWO_DIGITS}点半?|(?<!\d){_TWO_DIGITS}点半)"
    rf"|(?P<half>(?<![个年月天周日岁倍大上下前后点])半个?(?:{'|'.join(_HALVES)}))"
    rf"|(?P<mixed>{_MIXED})"
    rf"|(?P<number>{NUMBER}(?: \d{{3}}(?!\d))*)"
    rf"(?:[\s-]?(?P<scale>{_SCALE})\b|\s?(?P<short>{'|'.join(_SHORT_SCALES)})\b)?"
    rf"(?:\s?(?:%|％|percent\b|per cent\b)(?P<percent>))?"
    r"|(?P<share>(?<![a-zA-Z])(?:(?:a|one|two|three|four)[\s-])?"
    rf"(?:{'|'.join(_SHARES)})s?(?![a-zA-Z])|一半|半数)"
    r"|(?P<roman>(?<![a-zA-Z])(?:article|chapter|section|part|title|annex|appendix)\s"
    r"(?-i:[IVXLC]{1,9})(?![\w-]))"
    rf"|(?P<words>(?<![a-zA-Z])(?:{NUMBER_WORD})"
    rf"(?:(?:[\s-]+|[\s-]+and[\s-]+)(?:{NUMBER_WORD})){{0,12}}(?![a-zA-Z]))"
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
    r"(?:floors?|articles?|chapters?|sections?|clauses?|days?|nights?|weeks?|fortnights?|months?|quarters?|years?|hours?|minutes?|seconds?|times"
    r"|(?:kilo|centi|milli)?(?:met(?:re|er)s?|grams?|grammes?|lit(?:re|er)s?)|tons?|tonnes?|miles?"
    r"|feet|inch(?:es)?|pounds?|kg|km|cm|mm|m|percent|per cent|degrees?|euros?|dollars?|yuan|cents?"
    r"|people|persons?|employees?|workers?|points?|pages?|o'clock|%|℃|°)(?![a-zA-Z]))",
    re.IGNORECASE,
)
_NAMED: Final = re.compile(
    r"(?:article|chapter|section|clause|step|page|no\.|number)\s+\Z", re.IGNORECASE
)
_DAY_AFTER: Final = re.compile(r"\.?,? (\d{1,2})(?:st|nd|rd|th)?(?![\d:])")
_DAY_BEFORE: Final = re.compile(r"(?<!\d)(\d{1,2})(?:st|nd|rd|th)?(?: of)? \Z")
_YEAR_AFTER: Final = re.compile(r"\.?,? \d{4}(?!\d)")
# Another day of the same month: 5月4日至6日, May 4-6, 4-6 May.
_DAYS_AFTER: Final = re.compile(
    rf"[日号]?\s?(?:至|到|-|–|~|、|和|及|与|,|and|to)\s?({_TWO_DIGITS})(?=[日号]|(?![\d\w]))"
)
_DAYS_BEFORE: Final = re.compile(r"(?<!\d)(\d{1,2})\s?(?:-|–|~|,|and|to)\s?\Z")
# Says, among the values of a text, that no day of a month is in it.
_UNDATED: Final = "no date"
_AND_A_HALF: Final = re.compile(
    r"个半|[年月天周日岁倍]半(?![年月天])|[\s-]and[\s-]a[\s-]half(?![a-z])", re.IGNORECASE
)
# How many of the next smaller unit are in one that is counted with a half.
_SMALLER: Final = (
    (re.compile(r"\s?(?:小时|hours?\b)|[\s-]hour", re.IGNORECASE), 60),
    (re.compile(r"年|\s?years?\b", re.IGNORECASE), 12),
    (re.compile(r"[天日]|\s?days?\b", re.IGNORECASE), 24),
    (re.compile(r"公里|千米|\s?(?:km|kilomet(?:re|er)s?)\b", re.IGNORECASE), 1000),
)
_VULGAR: Final = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_RARE_NUMERALS: Final = (("廿", "二十"), ("卅", "三十"), ("⁄", "/"))
_FORMAL_THREE: Final = re.compile("参(?=[拾佰仟万])")


def quantities(text: str) -> list[Quantity]:
    """Return the numbers in a text, in order; a date gives its day, month and year.

    Examples:
        >>> [[*map(str, *each.readings)] for each in quantities("twenty-five 二十五 3万元 5%")[:3]]
        [['25'], ['25'], ['30000']]

    """
    plain = simplified(normal(_VULGAR.sub(" ", text)))
    for rare, usual in _RARE_NUMERALS:
        plain = plain.replace(rare, usual)
    return list(_quantities(_FORMAL_THREE.sub("叁", plain)))


def values(text: str) -> set[Value]:
    """Return every value that the numbers of a text may have.

    Examples:
        >>> sorted(map(str, values("五月四日")))
        ['4', '5', 'day 5-4']

    """
    readings = {
        value for quantity in quantities(text) for reading in quantity.readings for value in reading
    }
    is_dated = any(isinstance(value, str) and value.startswith("day ") for value in readings)
    return readings - {_UNDATED} if is_dated else readings | {_UNDATED}


def _quantities(text: str) -> Iterator[Quantity]:
    text = _NO_NUMBER.sub(lambda word: "\0" * len(word[0]), text)
    for match in _QUANTITY.finditer(text):
        kind = next(kind for kind in _KINDS if match[kind])
        half = _AND_A_HALF.match(text, match.end())
        for quantity in _KINDS[kind](match):
            yield _with_half(quantity, half[0], text[half.end() :][:12]) if half else quantity


def _with_half(quantity: Quantity, half: str, after: str) -> Quantity:
    """Return one and a half, which of some units is a number of the next smaller one, too."""
    sums = [[v + Fraction(1, 2) for v in r if isinstance(v, Fraction)] for r in quantity.readings]
    totals = [total for s in sums if s for total in s[-1:]]
    unit = after if half.startswith(("个", " ", "-")) else half
    parts = [number for pattern, number in _SMALLER if pattern.match(unit)]
    smaller = [total * number for total in totals for number in parts]
    return Quantity(quantity.text + half, tuple(map(only, [*totals, *smaller])))


def _percentage(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield a fraction; 百分之五 may mean 5 (per cent) or 5/100."""
    denominator, numerator = chinese_value(match["denominator"]), chinese_value(match["numerator"])
    if denominator and numerator is not None:
        share = only(numerator / denominator)
        is_rate = denominator in {100, 1000, 10_000}
        yield Quantity(match[0], (share, only(numerator)) if is_rate else (share,))


def _ratio(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield what may be a fraction, or a day and a month."""
    whole, _, ratio = match[0].rpartition(" ")
    above, below = map(Fraction, ratio.split("/"))
    before = [Fraction(whole)] if whole else []
    shares = [only(*before, above / below), only(sum(before) + above / below)] if below else []
    yield Quantity(match[0], (only(*before, above, below), *shares))


def _iso(match: re.Match[str]) -> Iterator[Quantity]:
    year, month, day = match[0].split("-")
    yield Quantity(year, (only(whole(year)),))
    yield _day(f"{month}-{day}", month, day)


def _date(match: re.Match[str]) -> Iterator[Quantity]:
    month, day = match[0].split("月")
    yield _day(f"{match[0]}日", month, day)
    yield from _other_days(match, month, "")


def _day(text: str, month: str, day: str, *, is_exact: bool = True) -> Quantity:
    """Return a day of a month; in a text without one, its two numbers may mean it."""
    numbers = [number for part in (month, day) if (number := chinese_value(part)) is not None]
    name = "day " + "-".join(map(str, numbers))
    return Quantity(text, (only(name), only(*numbers, _UNDATED)), is_exact)


def _other_days(match: re.Match[str], month: str, before: str) -> Iterator[Quantity]:
    after = match.string[match.end() : match.end() + 20]
    days = [_DAYS_BEFORE.search(before), _DAYS_AFTER.search(after)]
    yield from (_day("", month, day[1], is_exact=False) for day in days if day)


def _clock(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield a time of day; without a sign of the half of the day, it may be in both."""
    signs = "".join(re.findall(rf"[\d:点半{HAN_DIGIT}十]", match[0]))
    hours, _, minutes = signs.replace("点", ":").partition(":")
    hour = chinese_value(hours)
    minute = Fraction(30) if minutes == "半" else Fraction(minutes or 0)
    if hour is None:
        return
    is_late = match[0][0] in "下晚傍" or "p" in match[0].lower()
    is_early = "a" in match[0].lower()
    at = {hour % 12 + 12} if is_late else {hour} if is_early else {hour, hour + 12}
    times = [only(f"time {hour % 24}:{minute}") for hour in sorted(at)]
    yield Quantity(match[0], (*times, only(hour, *([minute] if minutes else []))))


def _half(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield half a unit, or as many of the next smaller one."""
    unit = next(half for half in _HALVES if match[0].endswith(half))
    smaller = _HALVES[unit]
    others = [] if smaller is None else [only(Fraction(smaller))]
    yield Quantity(match[0], (only(Fraction(1, 2)), *others))


def _mixed(match: re.Match[str]) -> Iterator[Quantity]:
    value = chinese_value(match[0])
    if value is not None:
        yield Quantity(match[0], (only(value),))


def _words(match: re.Match[str]) -> Iterator[Quantity]:
    before = match.string[max(0, match.start() - 12) : match.start()]
    is_named = _NAMED.search(before) is not None
    is_measured = _MEASURED.match(match.string, match.end()) is not None
    for words in separate(match[0]):
        value = english_value(words)
        is_large = value > SMALL or words.lower() in SCALES
        is_exact = value != 1 and (is_large or is_named or is_measured)
        yield Quantity(words, (only(Fraction(value)),), is_exact)


def _roman(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield the number of Article IX; the letter of Section C may be none."""
    numeral = match[0].split()[1]
    signs = [_ROMAN[sign] for sign in numeral]
    value = sum(sign if sign >= after else -sign for sign, after in pairwise([*signs, 0]))
    yield Quantity(match[0], (only(Fraction(value)),), is_exact=len(numeral) > 1)


def _month(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield a day of a month, or a month that stands beside a year."""
    number = next(str(number) for number in range(1, 13) if match[f"m{number}"])
    before = match.string[max(0, match.start() - 20) : match.start()]
    before_day, after_day = _DAY_BEFORE.search(before), _DAY_AFTER.match(match.string, match.end())
    if not match[0][0].isupper():
        return
    if before_day:
        yield _day(before_day[0] + match[0], number, before_day[1])
        yield from _other_days(match, number, before[: before_day.start()])
    elif after_day:
        yield _day(match[0] + after_day[0], number, after_day[1])
        other = _DAYS_AFTER.match(match.string, after_day.end())
        if other:
            yield _day("", number, other[1], is_exact=False)
    elif _YEAR_AFTER.match(match.string, match.end()):
        yield Quantity(match[0], (only(Fraction(number)),))


def _number(match: re.Match[str]) -> Iterator[Quantity]:
    yield Quantity(match[0], tuple(_readings(match)))


def _share(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield a half, two thirds; a third alone is also an ordinal."""
    *count, name = re.findall("[a-z]+", match[0].lower()) or ["half"]
    below = next(number for share, number in _SHARES.items() if name.startswith(share))
    readings = [only(Fraction(ENGLISH.get("".join(count), 1), below))]
    if not count:
        readings.append(only(Fraction(below)))
    yield Quantity(match[0], tuple(readings), is_exact=bool(count) and count != ["a"])


def _numerals(match: re.Match[str]) -> Iterator[Quantity]:
    """Yield a Chinese numeral; 三五天 are three to five days."""
    numeral = match[0].removeprefix("第")
    digits = [CHINESE[sign] for sign in numeral if sign in CHINESE]
    following = match.string[match.end() : match.end() + 1]
    is_measured = _MEASURED.match(match.string, match.end()) is not None
    if len(digits) == len(numeral) and len(digits) in {2, 3} and not {"零", "〇"} & {*numeral}:
        about = only(*map(Fraction, digits))
        yield Quantity(match[0], (about, only(chinese_value(numeral) or Fraction(0))), is_measured)
        return
    value = chinese_value(numeral) if digits or numeral[0] in "十拾" else None  # 百姓, 千米
    if value is None:
        return
    counts = is_measured and (value != 1 or following in "天年月米日元")
    readings = [only(value)]
    if numeral.endswith("千") and following and following in "米克瓦帕":
        readings.append(only(value / 1000))
    is_exact = match[0] != numeral or value > SMALL or counts
    yield Quantity(match[0], tuple(readings), is_exact)


# What reads each kind of number, by its group of the pattern.
_KINDS: Final[Mapping[str, Callable[[re.Match[str]], Iterator[Quantity]]]] = {
    "denominator": _percentage,
    "ratio": _ratio,
    "iso": _iso,
    "date": _date,
    "clock": _clock,
    "half": _half,
    "mixed": _mixed,
    "number": _number,
    "share": _share,
    "roman": _roman,
    "words": _words,
    "month": _month,
    "han": _numerals,
}


def _readings(match: re.Match[str]) -> Iterator[frozenset[Value]]:
    number = match["number"]
    short = _SHORT_SCALES.get(match["short"] or "", 1)
    scale = SCALES[match["scale"].lower()] if match["scale"] else short
    if match["short"] and match["short"] not in "kK":  # M may be metres
        yield from readings_of(number)
    if scale == 1 and match["percent"] is None:
        yield from readings_of(number)
        return
    for reading in readings_of(number):
        scaled = frozenset(v * scale if isinstance(v, Fraction) else v for v in reading)
        yield scaled
        if match["percent"] is not None:
            yield frozenset(v / 100 if isinstance(v, Fraction) else v for v in reading)
