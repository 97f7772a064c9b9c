"""Spellings of an identifier for search: the whole name and its parts."""

import re
from itertools import accumulate
from typing import Final

from llama_retrieval_ext.text.segmentation import CONNECTORS

_UPPER: Final = "A-ZÀ-ÖØ-ÞΑ-ΩЀ-Я"
_LOWER: Final = rf"[^{_UPPER}\d_,{CONNECTORS}]"
_PARTS: Final = re.compile(
    rf"\d+(?:\.\d+)*"
    rf"|[{_UPPER}]{{2,}}s(?!{_LOWER})"  # APIs is the plural of API, not AP and Is
    rf"|[{_UPPER}]+(?=[{_UPPER}]{_LOWER})"
    rf"|[{_UPPER}]?{_LOWER}+"
    rf"|[{_UPPER}]+"
)
# Removed from the whole name, but not between digits: 1.2.3 is not 123.
_JOINTS: Final = re.compile(r",|(?<!\d)[.'’\-‐_]+|[.'’\-‐_]+(?!\d)")  # noqa: RUF001
_SPACERS: Final = re.compile(rf"[{CONNECTORS},_]+")
_SIGN: Final = re.compile(r"(?:\+\+|#)$")
_POSSESSIVE: Final = re.compile(r"['’][sS]$")  # noqa: RUF001
_MOST_PARTS: Final = 12


def spellings(piece: str) -> list[str]:
    """Return a name as one word without separators, then its parts, all casefolded.

    So ``userName``, ``user_name``, ``user-name`` and ``username`` find each other, and ``name``
    finds them all. A number with points also gives its prefixes, so that 3.12 finds 3.12.1.

    Args:
        piece: A word as returned by `pieces`.

    Returns:
        Spellings, whole first; none if there are only underscores. A name with more than 12
        parts (a hash, encoded data) is split at its separators only.

    Examples:
        >>> spellings("HTTPServer2")
        ['httpserver2', 'http', 'server', '2']
        >>> spellings("1.2.3")
        ['1.2.3', '1.2', '1']
        >>> spellings("women's"), spellings("C++"), spellings("count++")
        (['women'], ['c++'], ['count++', 'count'])

    """
    name, *signed = _without_sign(without_possessive(piece))
    if name.startswith("."):  # .NET becomes NET, which ASP.NET also has
        signed, name = [name.casefold()], name[1:]
    elif signed and len(name) == 1:  # C++ must not match C
        return signed
    whole = _JOINTS.sub("", name).casefold()
    parts = _parts(name)
    if len(parts) > _MOST_PARTS:
        parts = _words(name.casefold())
    if not whole or parts[:1] == [whole]:
        return signed + parts
    return [*signed, whole, *parts]


def plain_spellings(piece: str) -> list[str]:
    """Return the words of a name unchanged; only numbers keep their points.

    Args:
        piece: A word as returned by `pieces`.

    Returns:
        Casefolded words; none if there are only underscores.

    Examples:
        >>> plain_spellings("os.getUser_name"), plain_spellings("1.2.3"), plain_spellings("C#")
        (['os', 'getuser_name'], ['1.2.3'], ['c#'])

    """
    name = without_possessive(piece).casefold()
    if _SIGN.search(name) or name.startswith("."):
        return [name]
    return [word for word in _PLAIN.findall(name) if word.strip("_")]


def without_possessive(piece: str) -> str:
    """Return the word without ``'s``.

    Args:
        piece: A word as returned by `pieces`.

    Returns:
        The word up to a final ``'s`` or ``'S``, with either apostrophe.

    Examples:
        >>> without_possessive("what's"), without_possessive("O'Brien")
        ('what', "O'Brien")

    """
    return _POSSESSIVE.sub("", piece)


_PLAIN: Final = re.compile(rf"(?<![\w.])\d+(?:\.\d+)+(?!\w)|[^{CONNECTORS},]+")


def _without_sign(name: str) -> list[str]:
    """Return the name and, if it ends with a sign, its last word with the sign."""
    bare = _SIGN.sub("", name)
    return [name] if bare == name else [bare, _SPACERS.split(name)[-1].casefold()]


def _parts(name: str) -> list[str]:
    return [part for found in _PARTS.findall(name) for part in _beginnings(found.casefold())]


def _beginnings(part: str) -> list[str]:
    """Return the prefixes of a number (1.2.3, 1.2, 1); a part without a point is returned alone."""
    if "." not in part:
        return [part]
    return [*accumulate(part.split("."), lambda left, right: f"{left}.{right}")][::-1]


def _words(name: str) -> list[str]:
    return [word for word in _SPACERS.split(name) if word]
