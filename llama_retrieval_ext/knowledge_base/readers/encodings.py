"""The encodings of texts."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from llama_retrieval_ext.errors import ConfigurationError

# The start of the reason why a picture, for instance, is not read.
UNSUPPORTED: Final = "this kind of file is not supported"
_TEXT_SUFFIXES: Final = {"", ".txt", ".md", ".rst", ".csv", ".tsv", ".json", ".xml", ".log", ".eml"}
_HEAD_BYTES: Final = 2**16
# Longer marks first: UTF-32's begins with UTF-16's.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1f]")
_DECLARED: Final = re.compile(rb"""\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([\w.:-]+)["']""")
# Encodings in ASCII: their escapes, and the encodings that have them.
_ESCAPES: Final = (
    (re.compile(rb"\x1b\$\)C"), ("iso2022_kr",)),
    (re.compile(rb"\x1b[$(]"), ("iso2022_jp", "iso2022_jp_2", "iso2022_jp_3")),
    (re.compile(rb"~\{(?:[\x21-\x77][\x21-\x7e])+~\}"), ("hz",)),
)
_UTF7: Final = re.compile(rb"\+(?:-|[A-Za-z0-9+/]*)")
_UTF7_LETTERS: Final = re.compile(rb"\+(?:-|[A-Za-z0-9/][A-Za-z0-9+/]{2,})")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_RARE: Final = re.compile("[\x80-\uffff]")
_EMOJI: Final = re.compile("[\u2000-\u27ff\ufe0f\U0001f000-\U0001faff]")
_NO_CHARACTER: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff]")  # private, too
_LETTERLIKE: Final = "\u2100"  # before it, letters of Europe and punctuation
_LEGACY: Final = ("gb2312", "big5hkscs", "euc_kr", "euc_jp")
_COMMON: Final = 0.92  # of the characters of a text that are not ASCII
# Characters that it takes to tell encodings apart: shorter texts fit several.
_LEAST_LEGACY: Final = 20
_LEAST_WIDE: Final = 8
_MARKS_SHARE: Final = 0.05
_TWO: Final = 2  # bytes; Korean also has syllables of eight
_MOST_CONTROLS: Final = 20  # one of so many characters


class _Script(NamedTuple):
    """A standard, the first bytes of its common characters, and a tenth of what people write."""

    standard: str
    common: range
    marks: str


_CHINESE: Final = "的一是不了在有人和中为為，。、：；"  # noqa: RUF001
_JAPANESE: Final = _Script("euc_jp", range(0xA1, 0xD0), "のはにをがでとたいるし、。ーンスルイ")
_SCRIPTS: Final = {
    "gb18030": _Script("gb2312", range(0xB0, 0xD8), _CHINESE),
    "big5": _Script("big5", range(0xA4, 0xC7), _CHINESE),
    "cp949": _Script("euc_kr", range(0xB0, 0xC9), "이다가는을를에의고하은지사로"),
    "cp932": _JAPANESE,
    "euc_jp": _JAPANESE,
}
_SIGNS: Final = range(0xA1, 0xA4)  # punctuation in all of them


def check_encoding(encoding: str) -> str:
    """Return the name of a text encoding, or raise."""
    try:
        "a".encode(encoding or "utf-8")  # nothing is looked up for no text
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"encoding must be one of Python's, such as 'latin-1' or 'cp1252', got {encoding!r}"
        ) from error
    return encoding


def read_text(file: Path, encoding: str = "") -> str:
    """Return the text of a file, as `decoded`, with line ends as in Unix; raise if it has none."""
    with file.open("rb") as opened:
        data = opened.read(_HEAD_BYTES)
        if len(data) < _HEAD_BYTES or _may_be_text(data):  # avoids reading a whole video
            data += opened.read()
    try:
        text = decoded(data, encoding)
    except ConfigurationError:
        suffix = file.suffix.lower()
        if suffix in _TEXT_SUFFIXES or CONTROL.search(data.decode("latin-1")) is None:
            raise
        raise ConfigurationError(f"{UNSUPPORTED}: {suffix}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decode_text(data: bytes, encoding: str = "") -> str | None:
    """Return bytes as text, as `decoded`; None if it is not certain which encoding they have."""
    try:
        return decoded(data, encoding)
    except ConfigurationError:
        return None


def decoded(data: bytes, encoding: str = "") -> str:
    """Return bytes as text; raise and name likely encodings if it is not certain which they have.

    Byte order marks, the declaration of XML and UTF-8 come first, then ``encoding``, if given.
    Without it, UTF-16, UTF-32 and ISO-2022 are recognised by their form, and Chinese, Japanese and
    Korean of at least 20 characters by the most common ones, if only one encoding has them.
    """
    for mark, marked in _MARKS:
        if data.startswith(mark):
            return _checked(_decode(data, marked), data)
    declared = _DECLARED.match(data[:300])
    if declared and (text := _decode(data, declared[1].decode())) is not None:
        return _checked(text, data)
    text = _decode(data, "utf-8")
    if text is not None and b"\0" not in data:
        escaped = _escaped(data, encoding)
        if escaped or len(CONTROL.findall(text)) * _MOST_CONTROLS <= len(text):
            return escaped or text
    candidates = [encoding] if encoding else list(_candidates(data))
    if len(candidates) == 1:
        return _checked(_decode(data, candidates[0]), data)
    return _checked(None, data, candidates)


def _checked(text: str | None, data: bytes, candidates: list[str] | None = None) -> str:
    if text is not None and not CONTROL.search(text.replace("\x1b", "")):
        return text
    head = data[:_HEAD_BYTES]
    if not candidates and not CONTROL.search(head.decode("latin-1")):  # no picture or similar file
        from charset_normalizer import from_bytes  # noqa: PLC0415 - takes 50 ms

        candidates = [match.encoding for match in from_bytes(head)][:4]
    likely = ", ".join(candidates or ())
    raise ConfigurationError(
        "it is not text in UTF-8, UTF-16 or GB18030"
        + (f", or not certainly; likely encodings are {likely}" if likely else "")
        + "; encoding= reads it in another one"
    )


def _escaped(data: bytes, encoding: str) -> str:
    """Return the text of ASCII bytes with escapes to other characters; empty if there are none."""
    if encoding and (text := _decode(data, encoding)) is not None and data.isascii():
        return text
    for escape, encodings in _ESCAPES:
        if escape.search(data):
            texts = (_decode(data, name) for name in encodings)
            text = next((text for text in texts if text and not text.isascii()), None)
            if text is not None:
                return text
    shifts = _UTF7.findall(data)
    if shifts and all(map(_UTF7_LETTERS.fullmatch, shifts)):
        text = _decode(data, "utf-7") or ""
        rare = _NOT_ASCII.findall(text)
        if _is_plausible(text) and (len(rare) > 1 or rare[0] < _LETTERLIKE):
            return _checked(None, data, ["utf-7", "ascii"])
    return ""


def _candidates(data: bytes) -> Iterator[str]:
    """Yield the encodings that a text of no European encoding may have."""
    if CONTROL.search(data.decode("latin-1")):
        yield from _wide(data)
        return
    for name, script in _SCRIPTS.items():
        rare = _RARE.findall(_decode(data, name) or "")
        if len(rare) >= _LEAST_LEGACY:
            codes = [char.encode(script.standard, "ignore") for char in rare]
            leads = [code[0] if len(code) == _TWO else 0 for code in codes]
            common = sum(lead in script.common or lead in _SIGNS for lead in leads)
            marks = sum(char in script.marks for char in rare)
            if common >= _COMMON * len(rare) and marks >= _MARKS_SHARE * len(rare):
                yield name


def _wide(data: bytes) -> Iterator[str]:
    """Yield the encodings of two or four bytes a character that a text may have."""
    names = [name for name in ("utf-32-le", "utf-32-be") if _is_plausible(_decode(data, name))]
    if not names and len(data) % 2 == 0 and len(data) >= 2 * _LEAST_WIDE:
        names = [name for name in ("utf-16-le", "utf-16-be") if _is_plausible(_decode(data, name))]
        low, high = (data[place::2].count(0) for place in range(2))  # of ASCII, as are spaces
        if len(names) > 1 and max(low, high) > 8 * min(low, high):
            names = ["utf-16-le" if high > low else "utf-16-be"]
    yield from names


def _is_plausible(text: str | None) -> bool:
    """Return whether most characters of a text are letters of Europe or common ones of Asia."""
    if not text or _NO_CHARACTER.search(text):
        return False
    rare = _NOT_ASCII.findall(text)
    common = sum(
        char < "\u2000"
        or _EMOJI.match(char) is not None
        or any(char.encode(name, "ignore") for name in _LEGACY)
        for char in rare
    )
    return float(common) >= _COMMON * len(rare)


def _decode(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError):
        return None


def _may_be_text(head: bytes) -> bool:
    """Return whether a file with this beginning may be text."""
    if b"\0" not in head or head.startswith(tuple(mark for mark, _ in _MARKS)):
        return True
    # The cut may split a character of four bytes.
    whole = (head, head[:-2])
    texts = (_decode(part, name) for part in whole for name in _wide(part))
    return any(text is not None and not CONTROL.search(text) for text in texts)
