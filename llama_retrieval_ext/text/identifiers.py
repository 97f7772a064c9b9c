"""The spellings under which a name can be found: as a whole, and by its parts."""

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
# What the whole is written without; between digits it stays: 1.2.3 is not 123.
_JOINTS: Final = re.compile(r",|(?<!\d)[.'’\-‐_]+|[.'’\-‐_]+(?!\d)")  # noqa: RUF001
_SPACERS: Final = re.compile(rf"[{CONNECTORS},_]+")
_SIGN: Final = re.compile(r"(?:\+\+|#)$")
_POSSESSIVE: Final = re.compile(r"['’][sS]$")  # noqa: RUF001
_MOST_PARTS: Final = 12


def spellings(piece: str) -> list[str]:
    """A name as one word without its joints, then its parts, all casefolded.

    So ``userName``, ``user_name``, ``user-name`` and ``username`` find each other, and ``name``
    finds them all. A number with points is also its beginnings, so that 3.12 finds 3.12.1.

    Args:
        piece: A word as `pieces` cuts it.

    Returns:
        Spellings, whole first; none for mere underscores. What would have more than 12 parts, a
        hash or encoded data, is only cut at its joints.

    Examples:
        >>> spellings("HTTPServer2")
        ['httpserver2', 'http', 'server', '2']
        >>> spellings("1.2.3")
        ['1.2.3', '1.2', '1']
        >>> spellings("women's"), spellings("C++"), spellings("count++")
        (['women'], ['c++'], ['count++', 'count'])

    """
    name, *signed = _without_sign(without_possessive(piece))
    if name.startswith("."):  # of .NET is left what ASP.NET has, too
        signed, name = [name.casefold()], name[1:]
    elif signed and len(name) == 1:  # C++ is no C
        return signed
    whole = _JOINTS.sub("", name).casefold()
    parts = _parts(name)
    if len(parts) > _MOST_PARTS:
        parts = _words(name.casefold())
    if not whole or parts[:1] == [whole]:
        return signed + parts
    return [*signed, whole, *parts]


def plain_spellings(piece: str) -> list[str]:
    """The words of a name as they stand; only numbers keep their points.

    Args:
        piece: A word as `pieces` cuts it.

    Returns:
        Casefolded words; none for mere underscores.

    Examples:
        >>> plain_spellings("os.getUser_name"), plain_spellings("1.2.3"), plain_spellings("C#")
        (['os', 'getuser_name'], ['1.2.3'], ['c#'])

    """
    name = without_possessive(piece).casefold()
    if _SIGN.search(name) or name.startswith("."):
        return [name]
    return [word for word in _PLAIN.findall(name) if word.strip("_")]


def without_possessive(piece: str) -> str:
    """The word without ``'s``.

    Args:
        piece: A word as `pieces` cuts it.

    Returns:
        The word up to a final ``'s`` or ``'S``, with either apostrophe.

    Examples:
        >>> without_possessive("what's"), without_possessive("O'Brien")
        ('what', "O'Brien")

    """
    return _POSSESSIVE.sub("", piece)


_PLAIN: Final = re.compile(rf"(?<![\w.])\d+(?:\.\d+)+(?!\w)|[^{CONNECTORS},]+")


def _without_sign(name: str) -> list[str]:
    """The name and, if it has a sign, its last word with it: Objective-C, c++."""
    bare = _SIGN.sub("", name)
    return [name] if bare == name else [bare, _SPACERS.split(name)[-1].casefold()]


def _parts(name: str) -> list[str]:
    return [part for found in _PARTS.findall(name) for part in _beginnings(found.casefold())]


def _beginnings(part: str) -> list[str]:
    """1.2.3, 1.2 and 1 of 1.2.3; of anything without a point, itself."""
    if "." not in part:
        return [part]
    return [*accumulate(part.split("."), lambda left, right: f"{left}.{right}")][::-1]


def _words(name: str) -> list[str]:
    return [word for word in _SPACERS.split(name) if word]
