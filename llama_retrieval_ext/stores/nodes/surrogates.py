"""Text the engine can take: Python strings may hold lone surrogates, UTF-8 may not."""

from collections.abc import Mapping
from typing import Final

# To the private characters at the end of Unicode, which nobody uses: one to one, so that equal
# strings stay equal, others stay different, and a part stays a part.
_STAND_INS: Final = {0xD800 + i: 0x10D800 + i for i in range(0x800)}


def utf8_safe(text: str) -> str:
    r"""The text itself, or one with stand-ins for its lone surrogates.

    Examples:
        >>> utf8_safe("a\ud800") == "a\U0010d800"
        True

    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.translate(_STAND_INS)
    return text


def all_utf8_safe(values: Mapping[str, object]) -> dict[str, object]:
    """The same for every string in nested dicts and lists, keys included."""
    return {utf8_safe(key): _safe(value) for key, value in values.items()}


def _safe(value: object) -> object:
    match value:
        case str():
            return utf8_safe(value)
        case dict():
            return all_utf8_safe(value)
        case list():
            return [_safe(part) for part in value]
        case _:
            return value
