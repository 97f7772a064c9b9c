"""The encodings of texts."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

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
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff]")  # private, too
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
_HIGH: Final = re.compile(rb"[\x80-\xff]")
_NOT_LETTERS: Final = re.compile(rb"[\x80-\xbf]")  # of the European encodings, mostly
_HANGUL: Final = re.compile("[\uac00-\ud7a3\u3000-\u3003]")
_LEGACY: Final = ("gb2312", "big5", "euc_kr", "euc_jp")
_KANA: Final = re.compile("[\u3041-\u30ff]")
# Shares of a language's common characters in the characters of a text that are not ASCII.
_COMMON: Final = 0.85
_LEAST_LEGACY: Final = ("gb2312", "big5", "euc_kr", "euc_jp")
_LEAST_KANA: Final = 0.2
# Characters by which Korean is told from Chinese, whose bytes may mean common syllables.
_CERTAIN: Final = 20
_MOST_CONTROLS: Final = 20  # one of so many characters
_LEAST_CHARACTERS: Final = 8
_NOT_A_CHARACTER: Final = 0xFFFF


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
    Korean by their common characters, if only one of their encodings has them.
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
    likely = ", ".join(candidates or _guesses(data))
    raise ConfigurationError(
        "it is not text in UTF-8, UTF-16 or GB18030"
        + (f", or not certainly; likely encodings are {likely}" if likely else "")
        + "; encoding= reads it in another one"
    )


def _guesses(data: bytes) -> list[str]:
    """Return the encodings that are likely for a text; empty for pictures and similar files."""
    if CONTROL.search(data[:_HEAD_BYTES].decode("latin-1")):
        return []
    from charset_normalizer import from_bytes  # noqa: PLC0415 - takes 50 ms

    return [match.encoding for match in from_bytes(data[:_HEAD_BYTES])][:4]


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
    found = _UTF7.findall(data)
    if found and all(map(_UTF7_LETTERS.fullmatch, found)):
        text = _decode(data, "utf-7")
        rare = _NOT_ASCII.findall(text or "")
        if _is_plausible(text) and (len(rare) > 1 or rare[0] < "\u2000"):
            return _checked(None, data, ["utf-7", "ascii"])
    return ""


def _candidates(data: bytes) -> Iterator[str]:
    """Yield the encodings that a text of no European encoding may have."""
    if CONTROL.search(data.decode("latin-1")):
        yield from _wide(data)
        return
    if not _NOT_LETTERS.search(data):
        return
    common = {
        name: _share(_decode(data, name), name)
        for name in ("gb18030", "big5", "cp949", "cp932", "euc_jp")
    }
    fitting = [name for name, share in common.items() if share >= _COMMON]
    is_long = len(_HIGH.findall(data)) >= 2 * _CERTAIN
    # Long Chinese has characters that are no syllables, long texts in Big5 bytes in ASCII.
    for name, other in (("cp949", "gb18030"), ("euc_jp", "big5")):
        if name in fitting:
            fitting = [name] if is_long else [name, other]
    yield from fitting


def _wide(data: bytes) -> Iterator[str]:
    """Yield the encodings of two or four bytes a character that a text may have."""
    of_four = [name for name in ("utf-32-le", "utf-32-be") if _decode(data, name) is not None]
    if of_four:
        yield from of_four
    elif len(data) % 2 == 0:
        zeros = [data[place::2].count(0) * 8 > len(data) for place in range(2)]
        names = ["utf-16-be"] * zeros[0] + ["utf-16-le"] * zeros[1] or ["utf-16-le", "utf-16-be"]
        yield from (
            name
            for name in names
            if any(zeros) or _is_plausible(_decode(data, name), _LEAST_CHARACTERS)
        )


def _is_plausible(text: str | None, least: int = 1) -> bool:
    """Return whether most characters of a text are letters of Europe or common ones of Asia."""
    rare = _NOT_ASCII.findall(text or "")
    if len(rare) < least or _CONTROLS.search(text or ""):
        return False
    common = sum(
        1
        for char in rare
        if char < "\u2000" or any(char.encode(name, "ignore") for name in _LEGACY)
    )
    return common >= _COMMON * len(rare)


def _share(text: str | None, encoding: str) -> float:
    """Return the share of characters that are common in the language of an encoding."""
    rare = [] if text is None else _NOT_ASCII.findall(text)
    rare = [char for char in rare if ord(char) <= _NOT_A_CHARACTER]
    if len(rare) < _LEAST_CHARACTERS or _CONTROLS.search(text or ""):
        return 0.0
    if encoding in ("cp932", "euc_jp"):
        kana = sum(1 for char in rare if _KANA.match(char))
        common = sum(1 for char in rare if char.encode("euc_jp", "ignore")[:1] <= b"\xcf")
        return common / len(rare) if kana >= _LEAST_KANA * len(rare) else 0.0
    if encoding == "cp949":
        syllables = (char for char in rare if _HANGUL.match(char))
        return sum(1 for char in syllables if char.encode("euc_kr", "ignore")) / len(rare)
    name, first, last = ("big5", 0xA4, 0xC6) if encoding == "big5" else ("gb2312", 0xB0, 0xD7)
    leads = [(char.encode(name, "ignore") or b"\0")[0] for char in rare]
    common = sum(1 for lead in leads if first <= lead <= last or lead in (0xA1, 0xA2, 0xA3, 0xA8))
    return common / len(rare)


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
