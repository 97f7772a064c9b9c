"""Relative dates in questions, such as "last May" or 昨天, by rules for English and Chinese."""

import re
from calendar import monthrange
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date, timedelta
from typing import Final, NamedTuple, TypeAlias

Days: TypeAlias = tuple[date, date]  # the first and the last

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_LOWER: Final = tuple(map(str.lower, MONTHS))
MONTH_STARTS: Final = tuple(month[:3] for month in _LOWER)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CHINESE: Final = ("一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二")
_SMALL: Final = (("a", "an", "one"), ("a couple of", "two", "两"), ("three",), ("four",), ("five",))
_LARGE: Final = ("six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_COUNTS: Final = {
    **{word: n for n, words in enumerate(_SMALL, start=1) for word in words},
    **{word: n for n, word in enumerate(_LARGE, start=6)},
    **{word: n for n, word in enumerate(_CHINESE, start=1)},
    **{month: n for n, month in enumerate(_LOWER, start=1)},
}
_YESTERDAYS: Final = (
    *(("today", "今天"), ("yesterday", "last night", "昨天", "昨晚")),
    *(("the day before yesterday", "前天"), ("大前天",)),
)
_DAYS_AGO: Final = {word: n for n, words in enumerate(_YESTERDAYS) for word in words}
_LAST: Final = (("this", "这", "本", "今年"), ("last", "上", "去年"), ("上上", "前年"))
_AGO: Final = {word: n for n, words in enumerate(_LAST) for word in words}


def date_words(year: int, month: int = 0, day: int = 0) -> str:
    """Return a day, a month or a year as questions name it, in English and Chinese.

    Examples:
        >>> date_words(2023, 5, 8), date_words(2023, 5)
        ('8 May 2023, 2023年5月8日', 'May 2023, 2023年5月')

    """
    if not month:
        return f"{year}, {year}年"
    english, chinese = f"{MONTHS[month - 1]} {year}", f"{year}年{month}月"
    return f"{day} {english}, {chinese}{day}日" if day else f"{english}, {chinese}"


class Period(NamedTuple):
    """Days that a text names, from the first to the last, and where it names them."""

    start: int
    end: int
    first: date
    last: date


def periods_in(text: str, today: date) -> list[Period]:
    """Return the relative dates of a question as days, in order.

    Args:
        text: The question, in lower case.
        today: The day on which it is asked.

    Examples:
        >>> [str(period.last) for period in periods_in("last may, yesterday", date(2024, 3, 1))]
        ['2023-05-31', '2024-02-29']

    """
    periods: list[Period] = []
    for rule, resolve in _RULES:
        pattern = re.compile(rf"(?<![a-z]){rule}(?![a-z])")
        for match in pattern.finditer(text):
            with suppress(ValueError, OverflowError):  # before the year 1
                periods.append(Period(*match.span(), *resolve(today, *match.groups())))
        text = pattern.sub(lambda match: " " * len(match[0]), text)
    return sorted(periods)


def windows_in(text: str, today: date) -> list[Period]:
    """Return the days until today that a question counts, as "the last three years" or 近两周.

    Examples:
        >>> [str(window.first) for window in windows_in("the last 2 weeks", date(2024, 3, 1))]
        ['2024-02-16']

    """
    windows: list[Period] = []
    for match in _WINDOW.finditer(text):
        count = _count(match["count"] or match["zh"] or "one")
        unit = match["unit"] or match["unit_zh"]
        with suppress(ValueError, OverflowError):
            days = {"day": 1, "天": 1, "week": 7, "周": 7, "星期": 7, "礼拜": 7}.get(unit, 0)
            first = today - timedelta(days=days * count)
            if not days:
                start, end = _back(today, count * (12 if unit in {"year", "年"} else 1), "month")
                first = start.replace(day=min(today.day, end.day))
            windows.append(Period(*match.span(), first, today if match["age"] is None else first))
    return windows


def dates_in(text: str, today: date) -> list[str]:
    """Return the relative dates of a question as `date_words`, for a week its months.

    Args:
        text: The question.
        today: The day on which it is asked.

    Examples:
        >>> dates_in("What did Ann say last May, and the day before yesterday?", date(2024, 3, 1))
        ['May 2023, 2023年5月', '28 February 2024, 2024年2月28日']

    """
    return [_words(period.first, period.last) for period in periods_in(text.lower(), today)]


def _words(first: date, last: date) -> str:
    """Return a day, a month, a year, or the months of a week.

    The seven days of a week would outweigh the rest of a question.
    """
    if first == last:
        return words_of(first)
    if (first, last) == month_of(first.year, 1, 12):
        return date_words(first.year)
    months = dict.fromkeys((day.year, day.month) for day in (first, last))
    return ", ".join(date_words(*month) for month in months)


def month_number(name: str) -> int:
    """Return the number of the month whose English name has these first three letters, or more."""
    return MONTH_STARTS.index(name[:3].lower()) + 1


def month_of(year: int, month: int, until: int = 0) -> tuple[date, date]:
    """Return the first and the last day of a month, or of several of a year."""
    return date(year, month, 1), date(year, until or month, monthrange(year, until or month)[1])


def _count(word: str) -> int:
    return int(word) if word.isdecimal() else _COUNTS[word]


def _back(today: date, count: int, unit: str) -> Days:
    """Return the day, week, month or year so long ago; weeks begin on Monday."""
    if unit in {"year", "年"}:
        return month_of(today.year - count, 1, 12)
    if unit in {"month", "月", "个月"}:
        year, month = divmod(12 * today.year + today.month - 1 - count, 12)
        return month_of(year, month + 1)
    if unit in {"day", "天"}:
        day = today - timedelta(days=count)
        return day, day
    monday = today - timedelta(days=today.weekday() + 7 * count)
    return monday, monday + timedelta(days=6)


def words_of(day: date) -> str:
    """Return a day as `date_words`."""
    return date_words(day.year, day.month, day.day)


def _last_month(today: date, name: str) -> Days:
    """Return the last month of a name that is over."""
    return month_of(today.year - (_COUNTS[name] >= today.month), _COUNTS[name])


def _last_weekday(today: date, name: str) -> Days:
    return _back(today, (today.weekday() - _DAYS.index(name) - 1) % 7 + 1, "day")


def _weekday_zh(today: date, week: str, day: str) -> Days:
    """Return a day of this week or the last; weeks begin on Monday."""
    number = 7 if day in "日天" else _COUNTS[day]
    return _back(today, today.weekday() + 7 * _AGO[week] + 1 - number, "day")


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))  # the longest is tried first


_MONTH: Final = _any(_LOWER)
_COUNT: Final = rf"\d{{1,3}}|{_any(set(_COUNTS).difference(_LOWER))}"
_UNIT: Final = "day|week|month|year|天|周|星期|礼拜|个月|年"
# Not the end of a longer number, such as 1500, 1.5, twenty-one, half a or 二十一.
_WHOLE: Final = r"(?<![\d零一二三四五六七八九十百千万])(?<!\d[.,])(?<![a-z]-)(?<!half )"
# Not the beginning of a word: 上周天气, 本周日程, 上周一直, 上周三次; 这周围, 上月球.
_DAY_ZH: Final = "[一二三四五六日天](?![气程志报直些个次])"
_WEEK_ZH: Final = "周(?![刊期围边岁转])|星期|礼拜|月(?![饼亮球台票])"
# With 上 these are adverbs, from 基本上 (basically) to 习惯上 (habitually), and not last week; none
# is a thing that something happened to last week, as in 规定上周发布.
_ADVERBS_ZH: Final = (
    "基本|根本|实际|事实|原则|理论|总体|大体|整体|大致|客观|主观|表面|本质|实质|名义|意义|程度|逻辑|"
    "传统|习惯|历史"
)
# Not the end of a word: 日本周刊, 原本周五, 一本周刊, 马上周五; 以前天气, 目前天气, 提前天数.
_THIS_ZH: Final = (
    "(?<![日成版基资样文课剧根原书脚标副账记范绘这那一两几每])本|"
    f"(?<![以晚早马上])(?<!{_ADVERBS_ZH})上上?|这"
)
_BEFORE_ZH: Final = "(?<![以之目当从眼提])"
# Not the end of a word: 过去年代, 以前年度.
_YEAR_ZH: Final = f"((?<![过失])去年|{_BEFORE_ZH}前年|今年)"
_WINDOW: Final = re.compile(
    r"(?:(?:(?<![a-z])(?:last|past|previous) |(?P<age>(?<=older than )|(?<=newer than )))"
    rf"(?P<count>{_COUNT})|(?<![a-z])past) "
    r"(?P<unit>day|week|month|year)s?(?![a-z])"
    rf"|(?:最近|过去|近)(?P<zh>{_COUNT})(?P<unit_zh>天|周|星期|礼拜|个月|年)内?"
)
# In their order; no rule reads what an earlier one has matched.
_RULES: Final[tuple[tuple[str, Callable[..., Days]], ...]] = (
    (
        # 两个月前 is two months ago, 2月前 before February.
        f"{_WHOLE}({_COUNT})(?: |个(?!月))?({_UNIT})(?:s? ago|[以之]?前)",
        lambda today, count, unit: _back(today, _count(count), unit),
    ),
    ("(?:half a year ago|(?<![年大小])半年[以之]?前)", lambda today: _back(today, 6, "month")),
    (f"{_BEFORE_ZH}({_any(_DAYS_AGO)})", lambda today, word: _back(today, _DAYS_AGO[word], "day")),
    (
        f"({_MONTH})(?: of)? (last|this) year",
        lambda today, name, year: month_of(today.year - _AGO[year], _COUNTS[name]),
    ),
    (
        f"{_YEAR_ZH}(0?[1-9]|1[0-2]|{_any(_CHINESE)})月",
        lambda today, year, month: month_of(today.year - _AGO[year], _count(month)),
    ),
    (f"last ({_MONTH})", _last_month),
    (
        rf"(?<=since )({_MONTH})(?! \d)",
        lambda today, name: month_of(today.year - (_COUNTS[name] > today.month), _COUNTS[name]),
    ),
    (f"last ({_any(_DAYS)})", _last_weekday),
    (f"(?<=since )({_any(_DAYS)})", _last_weekday),
    (f"({_THIS_ZH})个?(?:周|星期|礼拜)({_DAY_ZH})", _weekday_zh),
    (
        f"(last |this |{_THIS_ZH})个?(week|month|year|{_WEEK_ZH})",
        lambda today, ago, unit: _back(today, _AGO[ago.strip()], unit),
    ),
    (_YEAR_ZH, lambda today, ago: _back(today, _AGO[ago], "year")),
    (
        f"(?:next |(?<![以之线天地])下个?)(week|month|year|{_WEEK_ZH})",
        lambda today, unit: _back(today, -1, unit),
    ),
    ("明(年)", lambda today, unit: _back(today, -1, unit)),
)
