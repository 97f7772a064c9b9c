"""The words of questions by class, by which filters are recognised: `tokens`; and `Field`."""
# ruff: noqa: RUF001 - Chinese and typographic signs on purpose

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.filters import AllOf, Compare, Condition, Scalar
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.text.gazetteer import normalised
from llama_retrieval_ext.text.normalization import UNSPACED
from llama_retrieval_ext.text.numerals import (
    CHINESE,
    HAN_DIGIT,
    HAN_UNIT,
    MONTH_NAMES,
    NUMBER_WORD,
    TENS,
    chinese_value,
    english_value,
)
from llama_retrieval_ext.text.relative_dates import (
    Days,
    month_number,
    month_of,
    periods_in,
    windows_in,
)
from llama_retrieval_ext.text.segmentation import PERSON, has_unspaced

# The table says what the classes are. Beside them, n is a number, y a year, d another time, N a
# name, v another value, and x another word.
_TABLE: Final = Path(__file__).with_suffix(".tsv").read_text("utf-8").splitlines()
_ROWS: Final = [row.split("\t") for row in _TABLE if not row.startswith("#")]
_WORDS: Final = [row for row in _ROWS if row[0] not in {"F", "U"}]
# Words for the same field.
SYNONYMS: Final = [
    f"{words}|{signs}".strip("|").split("|") for code, _, words, signs in _ROWS if code == "F"
]
# What says of a field no more than its kind: 创建日期 is when it was created.
_SUFFIX: Final = re.compile(r"(?<=\w)(?: (?:date|at|on|time|name|count)|(?:日期|时间|数|名称))$")
_PERSONS: Final = {"director", "actor", "author", "assignee"}
_DIMENSIONS: Final = {"price", "duration", "weight", "length", "storage"}
_UNITS: Final = [row for row in _ROWS if row[0] == "U"]
_UNIT: Final = "|".join(
    rf"(?P<u{number}>(?:{words})(?![^\W_])|{signs or '(?!)'})"
    for number, (_, _, words, signs) in enumerate(_UNITS)
)
_CURRENCIES: Final = {"$": "usd", "€": "eur", "£": "gbp", "¥": "cny"}
_CLASSES: Final = re.compile(
    "|".join(
        rf"(?P<n{number}>(?<![^\W_])(?:{words or '(?!)'})(?![^\W_])|{signs or '(?!)'})"
        for number, (_, _, words, signs) in enumerate(_WORDS)
    )
)
_MONTH: Final = "|".join(MONTH_NAMES)
_TIME: Final = re.compile(
    r"(?<![\w.])(?P<iso>[12]\d{3})[-/](?P<m>0[1-9]|1[0-2])(?:[-/](?P<d>\d\d))?(?![\w-])"
    rf"|(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?)?\b(?P<month>{_MONTH})\.?,? "
    r"(?:(?P<us>\d{1,2})(?:st|nd|rd|th)?,? )?(?P<of>[12]\d{3})(?!\w)"
    rf"|(?P<first>{_MONTH})(?= (?:and|to|through|until|-|–) (?:{_MONTH}) (?P<until>[12]\d{{3}}))"
    r"|(?<!\d)(?P<zh>[12]\d{3})年(?:(?P<zm>\d{1,2})月(?:(?P<zd>\d{1,2})[日号])?)?(?!代)"
    r"|(?<=[到至—~-])(?P<same>\d{1,2})月(?:(?P<sd>\d{1,2})[日号])?"
    r"|(?<![\w.])(?P<decade>(?:[12]\d)?\d0)(?:['’]?s\b|年代)|(?P<tens>[二三四五六七八九])十年代"
    rf"|\b(?P<ties>{'|'.join(word[:-1] + 'ies' for word in TENS)})\b"
    r"|(?<![a-z0-9_.,])(?P<year>[12]\d{3})(?=[至到和及或与]|(?!\w|[.,]\d|-\d\d(?!\d)))"
)
_SIGN: Final = f"[{''.join(_CURRENCIES)}]"
_NUMBER: Final = re.compile(
    rf"(?<![a-z0-9_.])(?P<sign>{_SIGN}\s?)?"
    r"(?:(?P<number>-?\d{1,15}(?:,\d{3})*(?:\.\d{1,9})?)"
    r"\s?(?P<scale>k\b|m\b|thousand\b|million\b|万|亿)?"
    rf"|(?P<en>(?:half )?an?(?= hour)|(?:an? )?(?:{NUMBER_WORD})(?:[ -](?:{NUMBER_WORD})){{0,6}})"
    rf"|(?P<zh>半(?=个?小时)|[{HAN_DIGIT}{HAN_UNIT}]{{1,12}}))"
    rf"(?:\s?(?:stars?|points?|分(?!钟)|票|次)|[\s-]?(?:{_UNIT})|\s?(?P<behind>{_SIGN}))?"
    r"(?![a-z0-9_]|\.\d)"
)
_LARGE: Final = re.compile("[百千万亿]|[分票次]$|(?:hundred|thousand|million)$")
_COUNTED: Final = {*"星页条篇章"}
_SCALES: Final = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "万": 1e4, "亿": 1e8}
_CENTURY: Final = 100
_OLD_DECADES: Final = 30  # "the 30s" are the 1930s
_GTE, _LTE, _LT = FilterOperator.GTE, FilterOperator.LTE, FilterOperator.LT
_DAY: Final = timedelta(days=1)
# Values that are looked at to say what a field is; numbers that are years, and their share.
_SAMPLE: Final = 1_000
_YEARS: Final = range(1000, 2200)
_MOST: Final = 0.9
_LONG_CHINESE: Final = 5
_SHORT_PERSON: Final = 3  # characters: names of two are words, such as 高峰
_ACRONYM: Final = 3  # letters, of which a value in capitals may be another word in lower case
# Chinese laws are named without it.
_STATE: Final = "中华人民共和国"
_LETTER: Final = rf"(?![{UNSPACED}])[^\W_]"
_ANY: Final = re.compile(rf"(?!non-)(?:{_LETTER})+(?:(?!['’]s\b)['’-](?!\d)(?:{_LETTER})+)*|\w")


# What says that a time is that of validity, before it or behind it; and what may say so.
_HELD: Final = re.compile(
    r"\b(?:as (?:of|at)|(?:as|what) (?:it|they) (?:was|were|stood)"
    r"|held|valid|applicable|in (?:force|effect))(?: (?:as of|on|in|at|during|(before|until)))?"
    r"(?: the)? $|截至$|截止到?$"
)
_HELD_BEHIND: Final = re.compile(
    "(之?前)?(?:当?时|年?底|为?止)?(?:仍?有效|生效|施行|适用|现行)中?的?"
)
_IN: Final = re.compile(r"\b(?:in|on|during) $|(?:^|[在于])$")
_AT_END: Final = re.compile(r"[\s?？.。!！]*$")


class Amount(NamedTuple):
    """A number with a unit: "500 g" is 500, of weight, in units of .001 of its first unit."""

    number: float
    dimension: str
    size: str  # or the currency


class Meaning(NamedTuple):
    """What words may mean: a value of a field, the field itself, or without one a title."""

    field: str = ""
    value: str = ""
    is_plural: bool = False
    is_part: bool = False  # of the name of a person


class Token(NamedTuple):
    """Words of a question: their place, their class, and what they mean."""

    start: int
    end: int
    code: str
    meaning: Any = None  # of the class


def tokens(question: str, mentions: Iterable[Token], today: date) -> list[Token]:
    """Return the words of a question by class, in order; of overlapping ones the longest.

    Args:
        question: The question.
        mentions: The fields and values in it.
        today: The day of relative dates.
    """
    plain, offsets = normalised(question)
    spans: list[Token] = []
    named = [*mentions]
    for token in (*_times(plain, today), *_classes(plain)):
        start, end = offsets[token.start], offsets[token.end - 1] + 1
        if token.code == "n":  # "3 stars", where stars are a field
            end = min([m.start for m in named if m.code == "F" and start < m.start < end] or [end])
        spans.append(token._replace(start=start, end=end))
    # No value is called "not"; but kinds of documents may be values.
    spans.sort(key=lambda token: token.code in "agjorx")
    at = sum(token.code not in "agjorx" for token in spans)
    spans[at:at] = named
    kept: list[Token] = []
    for token in sorted(spans, key=lambda token: (token.start, -token.end)):  # stable
        if not kept or token.start >= kept[-1].end:
            kept.append(token)
    return kept


def _classes(plain: str) -> Iterator[Token]:
    for match in _CLASSES.finditer(plain):
        code, meaning, *_ = _row(match)
        yield Token(*match.span(), code, meaning)
    for match in _ANY.finditer(plain):
        yield Token(*match.span(), "x")


def class_of(words: str) -> str:
    """Return the class of words, such as g for "film"; x for that of others."""
    match = _CLASSES.fullmatch(words.casefold())
    return "x" if match is None else _row(match)[0]


def _row(match: re.Match[str]) -> list[str]:
    return _WORDS[int((match.lastgroup or "")[1:])]


def held_at(question: str, today: date, *, is_only: bool) -> Token | None:
    """Return the words that say as of when a question asks, and that day: the last of a period.

    Args:
        question: The question.
        today: The day of relative dates, and the last of a period that is not over.
        is_only: Whether a time belongs to nothing else: then "in 2023" is enough.
    """
    plain, offsets = normalised(question)
    for token in _times(plain, today):
        if token.code == "n":
            continue
        first, last = token.meaning
        day = min(last, max(first, today))
        before = _HELD.search(plain, 0, token.start)
        behind = _HELD_BEHIND.match(plain, token.end)
        if any(match and match[1] for match in (before, behind)):  # "before 2023"
            day = first - _DAY
        if before is None and behind is None and is_only:
            before = _IN.search(plain, 0, token.start)
            if before and before.start() and not _AT_END.match(plain, token.end):
                before = None
        if before is None and behind is None:
            continue
        start = offsets[before.start() if before else token.start]
        end = offsets[(behind.end() if behind else token.end) - 1] + 1
        return Token(start, end, "d", day)
    return None


def _times(plain: str, today: date) -> Iterator[Token]:
    """Yield numbers (n), years (y), and other periods (d), each with its value or its days."""
    for period in (*windows_in(plain, today), *periods_in(plain, today)):
        yield Token(period.start, period.end, "d", (period.first, period.last))
    year = 0  # of the time before, to which "至8月" belongs
    for match in _TIME.finditer(plain):
        with suppress(ValueError):  # no date of the calendar
            code, days = _time_of(match, today, year)
            year = days[0].year
            yield Token(*match.span(), code, days)
    for match in _NUMBER.finditer(plain):
        sign = (match["sign"] or match["behind"] or "").strip()
        units = (name for name, text in match.groupdict().items() if name[0] == "u" and text)
        unit = f"price {_CURRENCIES[sign]}" if sign else _unit(next(units, ""))
        # "one" and "a hundred" are words of many questions.
        is_counted = _LARGE.search(match[0]) or plain[match.end() : match.end() + 1] in _COUNTED
        if unit or match["number"] or is_counted:
            value = _number(match)
            yield Token(*match.span(), "n", Amount(value, *unit.split()) if unit else value)


def _unit(name: str) -> str:
    """Return the dimension of a unit and its size, or its currency; empty for no unit."""
    return _UNITS[int(name[1:])][1] if name else ""


def _number(match: re.Match[str]) -> float:
    words = match["en"] or match["zh"]
    if not words:
        value = float(match["number"].replace(",", "")) * _SCALES.get(match["scale"], 1)
    elif words.startswith(("half", "半")):
        value = 0.5
    elif match["zh"]:
        value = float(chinese_value(words) or 0)
    else:
        value = float(english_value(words) or 1)
    return int(value) if value.is_integer() else value


def _time_of(match: re.Match[str], today: date, before: int) -> tuple[str, Days]:
    decade, ties, tens = match["decade"], match["ties"], match["tens"]
    if decade or ties or tens:
        if tens:
            decade = 10 * CHINESE[tens]
        year = int(decade or 10 * TENS.index(f"{ties[:-3]}y") + 20)
        if year < _CENTURY:
            year += 2000 if 2000 + year <= today.year and year < _OLD_DECADES else 1900
        return "d", (date(year, 1, 1), date(year + 9, 12, 31))
    year = int(next(filter(None, match.group("iso", "of", "until", "zh", "year")), before))
    day = int(next(filter(None, match.group("d", "day", "us", "zd", "sd")), 0))
    name = match["month"] or match["first"]
    month = int(match["m"] or match["zm"] or match["same"] or 0)
    if name:
        month = month_number(name)
    if day:
        on = date(year, month, day)
        return "d", (on, on)
    return ("d", month_of(year, month)) if month else ("y", month_of(year, 1, 12))


class Field:
    """A field with its values, which are words, numbers, years or dates."""

    def __init__(self, name: str, values: Sequence[Scalar], *, is_list: bool) -> None:
        self.name, self.values, self.is_list = name, values, is_list
        self.words, self._dimension, self._size = _words_of(name)
        sample, self.kind = values[:_SAMPLE], "words"
        if all(map(is_number, sample)):
            years = sum(value in _YEARS for value in values)  # others say that it is not known
            self.kind = "year" if years >= _MOST * len(values) else "number"
        elif all(instant(value) is not None for value in sample):
            self.kind = "date"
        # Names are no words of a question by chance; common words are.
        persons = sum(PERSON.fullmatch(str(value)) is not None for value in sample)
        self.has_persons = not _PERSONS.isdisjoint(self.words) or persons > _MOST * len(sample)
        names = sum(self.is_name(str(value)) for value in sample)
        self.has_names = self.kind == "words" and 2 * names > len(sample)

    def is_name(self, value: str) -> bool:
        """Return whether a value is a name: no question has its words by chance."""
        if has_unspaced(value):
            least = _SHORT_PERSON if self.has_persons else _LONG_CHINESE
            return len(value) >= least or value.startswith("第")
        words = value.split()
        capitals = sum(not word[0].isalpha() or word[0].isupper() for word in words)
        is_id = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
        return is_id or "/" in value or (len(words) > 1 and 2 * capitals > len(words))

    def among(self, values: Iterable[Scalar]) -> Condition:
        """Return the condition that it has one of the values."""
        distinct = tuple(dict.fromkeys(values))
        if self.is_list:
            return Compare(self.name, FilterOperator.ANY, distinct)
        if len(distinct) == 1:
            return Compare(self.name, FilterOperator.EQ, distinct[0])
        return Compare(self.name, FilterOperator.IN, distinct)

    def compared(
        self, operator: FilterOperator | None, operands: Sequence[object], today: date
    ) -> Condition | None:
        """Return the condition that it compares with an operand, or is in a range.

        None if a value cannot be exact, such as a year for "after May 2020".
        """
        if self.kind == "words":
            return None
        ends = [self._ends(operand, today) for operand in operands]
        if not all(ends):
            return None
        low, high = ends[0][0], ends[-1][1]  # type: ignore[index]  # none is None
        above, below = FilterOperator.GT, _LTE
        if isinstance(low, date):
            low, high, above, below = low.isoformat(), (high + _DAY).isoformat(), _GTE, _LT
        either = {
            FilterOperator.GT: (above, high),
            FilterOperator.LTE: (below, high),
            _GTE: (_GTE, low),
            _LT: (_LT, low),
        }
        if operator is not None:
            return Compare(self.name, *either[operator])
        if low == high:
            return self.among([low])
        return AllOf((Compare(self.name, _GTE, low), Compare(self.name, below, high)))

    def spans(self, operands: Sequence[object]) -> bool:
        """Return whether operands without the name of a field may be its: amounts, or times."""
        if isinstance(operands[0], tuple) and not isinstance(operands[0], Amount):
            return self.kind in {"year", "date"}
        numbers = [value for value in self.values if not isinstance(value, str)] or [0]
        measured = [self.measured(operand) for operand in operands]
        return all(n is not None and min(numbers) <= n <= max(numbers) for n in measured)

    def measured(self, operand: object) -> float | None:
        """Return an amount in the unit of the field; None if it measures something else.

        The unit is the last word of its name, as in ``price_eur``, or else the first one of its
        dimension: kilograms, minutes, metres, gigabytes, and for a price any currency. A number
        without a unit may be a price: "under 300".
        """
        if not isinstance(operand, Amount):
            is_price = self._dimension == "price"
            return operand if is_price and isinstance(operand, int | float) else None
        if operand.dimension != self._dimension or self.kind != "number":
            return None
        if operand.size.isalpha():
            return operand.number if self._size in {"", operand.size} else None
        value = round(operand.number * float(operand.size) / float(self._size or 1), 9)
        return int(value) if value.is_integer() else value

    def _ends(self, operand: object, today: date) -> tuple[Any, Any] | None:
        """Return the first and the last value that an operand means; None if it has none."""
        if isinstance(operand, Amount):
            # A field whose unit nothing tells is of any: "80,000 km mileage".
            operand = self.measured(operand) if self._dimension else operand.number
            return None if operand is None else (operand, operand)
        if not isinstance(operand, tuple):
            return None if self.kind == "date" else (operand, operand)
        first, last = operand
        if self.kind == "date":
            return first, last
        is_whole = are_whole_years(operand) or last == today
        return (first.year, last.year) if is_whole else None


def are_whole_years(operand: object) -> bool:
    """Return whether an operand is days from the first of a year to the last of one."""
    if isinstance(operand, Amount) or not isinstance(operand, tuple):
        return False
    first, last = operand
    return (first.month, first.day, last.month, last.day) == (1, 1, 12, 31)


def _words_of(field: str) -> tuple[set[str], str, str]:
    """Return the words that name a field, singular and plural; its dimension, and its unit."""
    parts = re.sub(r"[_\W]+", " ", field).strip().casefold().split()
    match = re.fullmatch(_UNIT, parts[-1]) if len(field) > _ACRONYM else None
    unit = "" if match is None else _unit(match.lastgroup or "")
    name = " ".join(parts[:-1] or parts if unit else parts)
    single = name.removesuffix("s")
    stem = _SUFFIX.sub("", name)
    rows = [row for row in SYNONYMS if {name, single, stem, unit.partition(" ")[0]} & {*row}]
    synonyms = {form for row in rows for word in row for form in (word, plural(word))}
    dimension = next((row[0] for row in rows if row[0] in _DIMENSIONS), "")
    dimension, _, size = (unit or dimension).partition(" ")
    return {name, single, stem, plural(single), *synonyms} - {""}, dimension, size


def plural(word: str) -> str:
    """Return the plural of an English word."""
    if word.endswith("y") and word[-2:-1] not in "aeou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "z", "ch", "sh")) else f"{word}s"


def inflections(field: Field, value: str) -> Iterator[tuple[str, bool]]:
    """Yield the other forms of a value, and whether one is a plural: "comedies", 消防法."""
    if has_unspaced(value):
        for spelling in {value.removeprefix(_STATE), value.replace(" ", "")} - {value}:
            yield spelling, False
    elif not field.has_names:
        word = value.casefold()
        if word != value and len(word) > _ACRONYM:  # README, but not IT
            yield word, False
        adjective = re.sub("ation$", "ated", re.sub("ance$", "antic", word))
        for spelling in {word.removesuffix("s"), word.replace("-", " "), adjective} - {word}:
            yield spelling, False
        for spelling in {plural(word), plural(word.replace("-", " "))}:
            yield spelling, True
