"""The words of questions by class, by which filters are recognised: `tokens`."""
# ruff: noqa: RUF001 - Chinese and typographic signs on purpose

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

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
from llama_retrieval_ext.text.segmentation import has_unspaced

# `filter_patterns` says what the classes are; a row of the table has one, a meaning, and the words.
_TABLE: Final = Path(__file__).with_suffix(".tsv").read_text("utf-8").splitlines()
_ROWS: Final = [row.split("\t") for row in _TABLE if not row.startswith("#")]
_WORDS: Final = [row for row in _ROWS if row[0] not in {"F", "U"}]
# Words for the same field.
SYNONYMS: Final = [
    f"{words}|{signs}".strip("|").split("|") for code, _, words, signs in _ROWS if code == "F"
]
_UNITS: Final = [row for row in _ROWS if row[0] == "U"]
UNIT: Final = "|".join(
    rf"(?P<u{number}>(?:{words or '(?!)'})(?![^\W_])|{signs or '(?!)'})"
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
    r"\s?(?P<scale>(?<=\d)[km]\b|thousand\b|million\b|万|亿)?"
    rf"|(?P<en>(?:half )?an?(?= hour)|(?:an? )?(?:{NUMBER_WORD})(?:[ -](?:{NUMBER_WORD})){{0,6}})"
    rf"|(?P<zh>半(?=个?小时)|[{HAN_DIGIT}{HAN_UNIT}]{{1,12}}))"
    rf"(?:\s?(?:stars?|points?|分(?!钟)|票|次)|[\s-]?(?:{UNIT})|\s?(?P<behind>{_SIGN}))?"
    r"(?![a-z0-9_]|\.\d)"
)
_LARGE: Final = re.compile("[百千万亿]|[分票次]$|(?:hundred|thousand|million)$")
_COUNTED: Final = {*"星页条篇章"}
_NEAR: Final = 9  # characters, of "at least "
_COMPARED: Final = re.compile(r"(?:at (?:least|most)|than|over|under|exactly) $")
_SCALES: Final = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "万": 1e4, "亿": 1e8}
_RELATIVE: Final = {"who", "whose", "do", "does"}  # "doctors who do not speak English"
_EQUAL: Final = {"is", "are", "was", "were"}  # "the year is 1969"
_CENTURY: Final = 100
_OLD_DECADES: Final = 30  # "the 30s" are the 1930s
_DAY: Final = timedelta(days=1)
_LETTER: Final = rf"(?![{UNSPACED}])[^\W_]"
_ANY: Final = re.compile(rf"(?!non-)(?:{_LETTER})+(?:(?!['’]s\b)['’-](?!\d)(?:{_LETTER})+)*|\w")


# What stands behind "about", or before documents, and what is then left of a subject.
_TOPIC: Final = re.compile("o[^V,]*|x{1,4}(?=g)|^[aT]*x{1,4}(?=V)")
_SUBJECT: Final = re.compile("[xvNnyd]|[!wp]g")
_DEFINITION: Final = re.compile("[^xvNgnyd]*q[^xvNgnyd]*")  # "who is Tom Hanks"
# 广州2010年以后的地铁
_OTHER_HEAD: Final = re.compile("[Vs]k?x+$")
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
# What asks for the version before the present one.
_BEFORE_CHANGE: Final = re.compile(
    r"\b(?:before|prior to) (?:the|its|their) (?:last |latest )?"
    r"(?:change|amendment|revision|reform|new (?:version|edition|rules?|law))"
    r"(?: (?:took effect|came into force))?(?=,|[\s?.!]*$)"
    r"|(?:修订|修正|修改|变更|改版|新[版法规](?:施行|生效|实施)?)[之以]?前(?:的|(?=[\s?？。]*$))"
)
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

    ``mentions`` are the fields and values in it, ``today`` is the day of relative dates.
    """
    plain, offsets = normalised(question)
    spans: list[Token] = []
    named = [*mentions]
    before = {field.end + 1: field.meaning for field in named if field.code == "F"}
    labels = {  # "version 2.0"
        value[:2]
        for value in named
        if value.code in "vN"
        for field in before.get(value.start, ())
        if any(field.field == meaning.field for meaning in value.meaning)
    }
    for token in (*_times(plain, today), *_classes(plain)):
        start, end = offsets[token.start], offsets[token.end - 1] + 1
        if token.code == "n" and not isinstance(token.meaning, Amount):
            # "3 stars", where stars are a field
            end = min([m.start for m in named if m.code == "F" and start < m.start < end] or [end])
        if (start, end) not in labels:
            spans.append(token._replace(start=start, end=end))
    # No value is called "not"; but kinds of documents may be values.
    spans.sort(key=lambda token: token.code in "agjorx")
    at = sum(token.code not in "agjorx" for token in spans)
    spans[at:at] = named
    kept: list[Token] = []
    for token in sorted(spans, key=lambda token: (token.start, -token.end)):  # stable
        if not kept or token.start >= kept[-1].end:
            kept.append(token)
    codes = _codes(question, kept)
    return [token._replace(code=code) for token, code in zip(kept, codes, strict=True)]


def _codes(question: str, words: Sequence[Token]) -> list[str]:
    """Return the classes of words, of which some depend on the words beside them."""
    codes = [token.code for token in words]
    for at, token in enumerate(words):
        word = question[token.start : token.end]
        if token.code == "q" and codes[at - 1 : at] == ["F"] and word in _EQUAL:
            codes[at] = "e"
        if token.code == "k" and not at:  # "who is"
            codes[at] = "q"
        is_relative = token.code == "q" and word in _RELATIVE and codes[at - 1 : at] != ["p"]
        if at and (is_relative or (word == "that" and codes[at - 1] not in "pwo")):
            codes[at] = "k"
        if token.code == "F" and (code := class_of(word)) in {*"go"}:
            following = next((t for t in words[at + 1 :] if t.code not in "aT"), token)
            values = following.meaning if following.code in "vNP" else ()
            is_field = any(value.field == m.field for value in values for m in token.meaning)
            is_field |= code == "g" and following.code == "e"
            is_counted = code == "g" and codes[at - 1 : at] in (["v"], ["N"], ["n"])
            codes[at] = "F" if is_field or is_counted else code
    for match in re.finditer("(?=v[,&|]{1,2}N|N[,&|]{1,2}v)", "".join(codes)):
        ends = match.start(), match.start() + 2 + (codes[match.start() + 2] in ",&|")
        first, last = ({m.field for m in words[end].meaning} for end in ends)
        if first & last:  # "Rain or Tom Hanks"
            codes[ends[0]] = codes[ends[1]] = "N"
    return codes


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


def has_other_subject(question: str, words: Sequence[Token], codes: str, *, is_alone: bool) -> bool:
    """Return whether a question looks for something else than documents of its filters.

    It does if it asks for no more than what a value is, or if no filter is certain, by its field,
    its unit or a name, and there are words that are no filter, are not behind "about", and do not
    describe documents, as in "heist films". ``codes`` are the classes of the words, V for those of
    filters; ``is_alone`` says that there is one filter, or no document is named beside several.
    """
    if _DEFINITION.fullmatch(codes):
        return not question.startswith("有")  # 有红色的吗
    left = ""
    # A Chinese word may be part of a longer one.
    is_certain = has_unspaced(question) is not None and not _OTHER_HEAD.search(codes)
    for token, code in zip(words, codes, strict=True):
        text = question[token.start : token.end]
        is_name = token.code == "F" or (token.code == "N" and not text.islower())
        is_certain |= code == "V" and (is_name or isinstance(token.meaning, Amount))
        is_title = code == "x" and any(not meaning.field for meaning in token.meaning or ())
        is_topic = is_title or (left[-1:] == "V" and text == "on")  # "guides on tuning"
        is_participle = left[-1:] == "g" and text.endswith(("ed", "ing"))
        left += "o" if is_topic else "r" if is_participle else code
    is_doubtful = is_alone and not is_certain
    return is_doubtful and _SUBJECT.search(_TOPIC.sub("", left)) is not None


def held_at(question: str, today: date, *, is_only: bool) -> Token | None:
    """Return the words that say as of when a question asks, and that day: the last of a period.

    Of a period that is not over, it is ``today``. If a time belongs to nothing else, ``is_only``,
    "in 2023" is enough.
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


def before_change(question: str) -> Token | None:
    """Return the words that ask for what held before a change, such as 修订前的; without a day."""
    plain, offsets = normalised(question)
    match = _BEFORE_CHANGE.search(plain)
    return match and Token(offsets[match.start()], offsets[match.end() - 1] + 1, "d")


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
        unit = f"price {_CURRENCIES[sign]}" if sign else unit_of(next(units, ""))
        # "one" and "a hundred" are words of many questions; "at most one" compares.
        start, end = match.span()
        is_counted = _LARGE.search(match[0]) or plain[end : end + 1] in _COUNTED
        is_counted = is_counted or _COMPARED.search(plain, max(0, start - _NEAR), start) is not None
        if unit or match["number"] or is_counted:
            value = _number(match)
            yield Token(*match.span(), "n", Amount(value, *unit.split()) if unit else value)


def unit_of(name: str) -> str:
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
