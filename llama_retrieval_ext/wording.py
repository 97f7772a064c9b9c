"""Words that messages and views share."""

import json
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

# Characters of a text in one line of a view.
_SHORT_TEXT: Final = 50
# Limits of names and values that come from documents, in messages.
_SHOWN: Final = 5
_LONGEST: Final = 30
# Characters of a name that are compared.
_COMPARED: Final = 100


def counted(number: int, noun: str) -> str:
    """Return a number with a noun in singular or plural.

    Examples:
        >>> counted(1, "document"), counted(1200, "document")
        ('1 document', '1,200 documents')

    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def short(text: str, length: int = _SHORT_TEXT) -> str:
    """Return text on one line, cut to a number of characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length]}…"


def quoted(value: object) -> str:
    """Return a value as in Python, on one line and cut to 30 characters.

    Examples:
        >>> quoted("year"), quoted(2024), quoted("x" * 40)
        ("'year'", '2024', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'")

    """
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def as_data(value: object, *, longest: int = _LONGEST) -> str:
    r"""Return a value of a document as JSON, on one line and cut to 30 characters.

    For texts that a model trusts, such as the description of a tool: what documents bring into
    them is data, and cannot look like a sentence of the text.

    Examples:
        >>> print(as_data("leave"), as_data(2024), as_data("a\n# New rules"))
        "leave" 2024 "a\n# New rules"

    """
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False, default=str)
        if len(text) <= longest:
            return _printable(text)
        value = text
    cut = value if len(value) <= longest else f"{value[:longest]}…"
    return _printable(json.dumps(cut, ensure_ascii=False))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def on_one_line(value: object, *, longest: int = 60) -> str:
    """Return a printable short string as it is, and another value as `as_data`."""
    is_plain = isinstance(value, str) and len(value) <= longest and value.isprintable()
    return str(value) if is_plain else as_data(value, longest=longest)


def is_field_name(key: str) -> bool:
    """Return whether a key of metadata is a name that such texts list: an identifier, not long."""
    return len(key) <= _LONGEST and key.isidentifier()


def nearest(name: str, names: Iterable[str], *, least: float = 0.0) -> str:
    """Return the names most like a name, quoted, best first: at most five.

    Alike are names that share letters and pairs of letters, ignoring case (Dice's coefficient);
    those with less than ``least`` are left out, and if none is left, the text is empty.

    Examples:
        >>> nearest("yaer", ["title", "year"])
        "'year', 'title'"
        >>> nearest("挖坑", ["地铁", "深基坑开挖"])
        "'深基坑开挖', '地铁'"

    """
    grams = _grams(name)

    def likeness(other: str) -> float:
        others = _grams(other)
        return 2 * (grams & others).total() / ((grams + others).total() or 1)

    scored = sorted((-likeness(other), other) for other in {*names})
    ranked = [other for score, other in scored if -score >= least]
    more = ", …" if len(ranked) > _SHOWN else ""
    return ", ".join(map(quoted, ranked[:_SHOWN])) + more


def unknown(what: str, name: str, names: Iterable[str], *, least: float = 0.15) -> str:
    """Return the sentence that a graph has no such thing, with the nearest that it has.

    Examples:
        >>> unknown("engineering type", "核电站", ["地铁", "房建", "水利"], least=0)
        "no engineering type '核电站'; the graph has '地铁', '房建', '水利'"
        >>> unknown("process", "baking", ["深基坑开挖"])
        "no process 'baking' in the graph"

    """
    near = nearest(name, names, least=least)
    return f"no {what} {quoted(name)}{f'; the graph has {near}' if near else ' in the graph'}"


def _grams(name: str) -> Counter[str]:
    text = name.casefold()[:_COMPARED]
    return Counter([*text, *map("".join, pairwise(text))])


def path_tails(path: str) -> list[str]:
    """Return the ends of a path by which it can be named, shortest first.

    Examples:
        >>> path_tails("docs/sub/leave.md")
        ['leave.md', 'sub/leave.md', 'docs/sub/leave.md']

    """
    parts = path.replace("\\", "/").split("/")
    return ["/".join(parts[start:]) for start in reversed(range(len(parts)))]
