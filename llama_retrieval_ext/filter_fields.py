"""`Field`: a field with its values, how questions name them, and what it compares with."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Final

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.filter_words import SYNONYMS, UNIT, Amount, Meaning, unit_of
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Scalar
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.text.segmentation import PERSON, has_unspaced

# What says of a field no more than its kind: 创建日期 is when it was created.
_SUFFIX: Final = re.compile(
    r"(?<=\w)(?: (?:date|at|on|time|name|count|max|min)|(?:日期|时间|年份|数|名称)|(?<=\w\w)人)$"
    r"|^(?:max|min|mean|num|total) (?=\w)"
)
_PERSONS: Final = {
    *("director", "actor", "author", "assignee", "agent", "artist", "chef", "composer", "doctor"),
    *("editor", "engineer", "judge", "manager", "owner", "reporter", "seller", "singer"),
    *("speaker", "technician", "tutor"),
}
_DIMENSIONS: Final = {"price", "duration", "weight", "length", "storage", "volume", "area"}
_GTE, _LTE, _LT = FilterOperator.GTE, FilterOperator.LTE, FilterOperator.LT
_DAY: Final = timedelta(days=1)
# Values that are looked at to say what a field is; numbers that are years, and their share.
_SAMPLE: Final = 1_000
_YEARS: Final = range(1000, 2200)
_MOST: Final = 0.9
_HALF: Final = 0.5
_LONG_CHINESE: Final = 5
_SHORT_PERSON: Final = 3  # characters: names of two are words, such as 高峰
_ACRONYM: Final = 3  # letters, of which a value in capitals may be another word in lower case
# Chinese laws are named without it.
_STATE: Final = "中华人民共和国"


class Field:
    """A field with its values, which are words, numbers, years or dates."""

    def __init__(self, name: str, values: Sequence[Scalar], *, is_list: bool) -> None:
        self.name, self.values, self.is_list = name, values, is_list
        self.words, self._dimension, self._size = _words_of(name)
        sample, self.kind = values[:_SAMPLE], "words"
        if all(map(is_number, sample)):
            years = sum(value in _YEARS for value in values)  # others say that it is not known
            least = _HALF if "year" in self.words else _MOST
            self.kind = "year" if years >= least * len(values) else "number"
        elif all(instant(value) is not None for value in sample):
            self.kind = "date"
        ordered = [v for v in values if isinstance(v, str) is (self.kind == "date")] or [0]
        self._least: Any = min(ordered)  # dates as text
        self._most: Any = max(ordered)
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
        measured = [self.measured(operand) for operand in operands]
        return all(n is not None and self._least <= n <= self._most for n in measured)

    def begins_after(self, days: object) -> bool:
        """Return whether all its values are later; a time after them may be asked for in vain."""
        if not isinstance(days, tuple) or self.kind not in {"year", "date"}:
            return False
        last = days[-1]
        return bool(self._least > (last.year if self.kind == "year" else last.isoformat()))

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
            currency, _, times = self._size.partition("/")  # 万元
            is_same = currency in {"", operand.size}
            return operand.number / float(times or 1) if is_same else None
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


def fields_of(
    fields: Iterable[Field],
    named: Collection[str],
    operands: Sequence[Any],
    excluded: Collection[str],
) -> list[Field]:
    """Return the fields that compare with operands; years with years rather than dates."""
    fitting = [
        field
        for field in fields
        if field.kind not in excluded and operands
        if (field.name in named if named else field.spans(operands))
    ]
    kind = "year" if all(map(are_whole_years, operands)) else "date"
    return [f for f in fitting if not named and f.kind == kind] or fitting


def _words_of(field: str) -> tuple[set[str], str, str]:
    """Return the words that name a field, singular and plural; its dimension, and its unit."""
    parts = re.sub(r"[_\W]+", " ", field).strip().casefold().split()
    match = re.fullmatch(UNIT, parts[-1]) if len(field) > _ACRONYM else None
    unit = "" if match is None else unit_of(match.lastgroup or "")
    name = " ".join(parts[:-1] or parts if unit else parts)
    single = name.removesuffix("s")
    stem = _SUFFIX.sub("", name)
    head = name.partition(" per ")[0].split()[-1]  # "guest rating", "price per night"
    rows = [row for row in SYNONYMS if {name, single, stem, head, unit.partition(" ")[0]} & {*row}]
    synonyms = {form for row in rows for word in row for form in (word, plural(word))}
    dimension = next((row[0] for row in rows if row[0] in _DIMENSIONS), "")
    dimension, _, size = (unit or dimension).partition(" ")
    return {name, single, stem, plural(single), *synonyms} - {""}, dimension, size


def plural(word: str) -> str:
    """Return the plural of an English word."""
    if word.endswith("y") and word[-2:-1] not in "aeou":
        return f"{word[:-1]}ies"
    if word.endswith("sis"):
        return f"{word[:-2]}es"
    return f"{word}es" if word.endswith(("s", "x", "z", "ch", "sh")) else f"{word}s"


def spellings(field: Field, value: str) -> Iterator[tuple[str, Meaning]]:
    """Yield how a question may write a value, such as "comedies" and 消防法, with its meaning."""
    meaning = Meaning(field.name, value)
    yield value, meaning
    if field.has_persons and len(last := value.rsplit(maxsplit=1)[-1]) > len("Jr"):
        yield last, meaning._replace(is_part=True)
    if has_unspaced(value):
        for spelling in {value.removeprefix(_STATE), value.replace(" ", "")} - {value}:
            yield spelling, meaning
    elif not field.has_names:
        word = value.casefold()
        if word != value and len(word) > _ACRONYM:  # README, but not IT
            yield word, meaning
        adjective = re.sub("ation$", "ated", re.sub("ance$", "antic", word))
        for spelling in {word.removesuffix("s"), word.replace("-", " "), adjective} - {word}:
            yield spelling, meaning
        for spelling in {plural(word), plural(word.replace("-", " "))}:
            yield spelling, meaning._replace(is_plural=True)


def any_or_all(
    fields: Mapping[str, Field],
    codes: str,
    items: Sequence[Sequence[Meaning]],
    roles: Collection[str],
    *,
    is_negated: bool,
) -> Condition:
    """Return the condition of lists of values side by side: of each any, or all.

    ``codes`` are the classes of the words of the lists, ``items`` what each value may mean, and
    ``roles`` what prepositions say of their field: "with" a cast, "by" an author.
    """
    lists: list[tuple[list[Sequence[Meaning]], str]] = []
    for joint, item in zip(re.findall("([,&|]*)[aT]?[vN]", codes), items, strict=True):
        names = {meaning.field for listed in (lists or [([], "")])[-1][0] for meaning in listed}
        is_same = not names.isdisjoint(meaning.field for meaning in item)
        if lists and joint and (is_same or "|" in joint):
            listed, joints = lists[-1]
            lists[-1] = ([*listed, item], joints + joint)
        else:  # "horror comedies", "Sony or Bose, black"
            lists.append(([item], ""))
    is_any = is_negated or "e" in codes
    parts = [
        _list(fields, listed, roles, is_any=is_any or "|" in joints) for listed, joints in lists
    ]
    return any_of(parts) if len(parts) == 1 or is_negated else AllOf(tuple(parts))


def _list(
    fields: Mapping[str, Field],
    items: Sequence[Sequence[Meaning]],
    roles: Collection[str],
    *,
    is_any: bool,
) -> Condition:
    names = {meaning.field for item in items for meaning in item}
    if len(names) == 1 and len(items) > 1:
        field = fields[names.pop()]
        # A document has one author, and "comedies and dramas" are two kinds of it.
        is_any |= not field.is_list or any(m.is_plural for item in items for m in item)
        if is_any:
            return field.among(meaning.value for item in items for meaning in item)
    parts = [_among(fields, item, roles) for item in items]
    return any_of(parts) if is_any or len(parts) == 1 else AllOf(tuple(parts))


def _among(
    fields: Mapping[str, Field], meanings: Sequence[Meaning], roles: Collection[str]
) -> Condition:
    """Return the condition that a field has one of some values; of several fields, any."""
    meant = {meaning.field: fields[meaning.field] for meaning in meanings}
    # A cast has several names, and an author one: "with" and "by".
    fitting = [
        field
        for field in meant.values()
        if not {"author", "cast"}.isdisjoint(roles) and field.is_list is ("cast" in roles)
    ]
    return any_of(
        [
            field.among(m.value for m in meanings if m.field == field.name)
            for field in fitting or meant.values()
        ]
    )


def any_of(parts: Sequence[Condition]) -> Condition:
    """Return the condition that one of several holds; of one, that."""
    return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))
