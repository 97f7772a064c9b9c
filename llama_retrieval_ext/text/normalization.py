"""Detection of the writing system of a text, to separate Chinese, Japanese and English queries.

Supported writing systems, as ranges for a regular expression's ``[...]``.

Letters after NFKC only: no half-width, full-width or presentation forms.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

Script: TypeAlias = Literal[
    "latin",
    "cyrillic",
    "greek",
    "armenian",
    "hebrew",
    "arabic",
    "devanagari",
    "tamil",
    "thai",
    "lao",
    "khmer",
    "burmese",
    "han",
    "kana",
    "hangul",
]

# Includes the iteration mark, the ideographic zero and the Suzhou numerals, used among Han.
HAN: Final = (
    "\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
HIRAGANA: Final = "\u3041-\u3096\u309d-\u309f"
KATAKANA: Final = "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
HANGUL: Final = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"
CJK: Final = HAN + HIRAGANA + KATAKANA + HANGUL
# Letters and their marks; digits are those of every script.
SOUTH_EAST_ASIAN: Final = {
    "thai": "\u0e01-\u0e3a\u0e40-\u0e4e",
    "lao": "\u0e81-\u0ebd\u0ec0-\u0ecd\u0edc-\u0edf",
    "khmer": "\u1780-\u17d3\u17d7\u17dc\u17dd",
    "burmese": "\u1000-\u103f\u1050-\u108f\u109a-\u109d\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76"
    "\uaa7a-\uaa7f",
}
# The scripts that are written without spaces between words, and Korean.
UNSPACED: Final = CJK + "".join(SOUTH_EAST_ASIAN.values())

RANGES: Final[dict[Script, str]] = {
    "latin": "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u1e00-\u1eff",
    "cyrillic": "\u0400-\u0481\u048a-\u052f",
    "greek": "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u03ff\u1f00-\u1fbc",
    "armenian": "\u0531-\u0556\u0561-\u0587",
    "hebrew": "\u05d0-\u05ea\u05ef-\u05f2",
    "arabic": "\u0620-\u064a\u066e\u066f\u0671-\u06d3\u0750-\u077f",
    "devanagari": "\u0900-\u0963\u0971-\u097f",
    "tamil": "\u0b80-\u0bd7",
    "thai": SOUTH_EAST_ASIAN["thai"],
    "lao": SOUTH_EAST_ASIAN["lao"],
    "khmer": SOUTH_EAST_ASIAN["khmer"],
    "burmese": SOUTH_EAST_ASIAN["burmese"],
    "han": HAN,
    "kana": HIRAGANA + KATAKANA,
    "hangul": HANGUL,
}

# The scripts of languages, by their ISO 639-1 codes.
LANGUAGES: Final[dict[Script, str]] = {
    "latin": "af ca cs cy da de en es et eu fi fr ga gl hr hu id is it la lt lv ms nl no pl pt ro "
    "sk sl sq sv sw tl tr vi",
    "cyrillic": "be bg kk mk mn ru sr uk",
    "greek": "el",
    "armenian": "hy",
    "hebrew": "he yi",
    "arabic": "ar fa ur",
    "devanagari": "hi mr ne",
    "tamil": "ta",
    "thai": "th",
    "lao": "lo",
    "khmer": "km",
    "burmese": "my",
    "han": "ja zh",
    "kana": "ja",
    "hangul": "ko",
}

_LOOKED_AT: Final = 2000
# One character of these scripts carries about as much meaning as a word of the others.
_SYLLABIC: Final = frozenset({"han", "kana", "hangul"})
_RUNS: Final[dict[Script, re.Pattern[str]]] = {
    script: re.compile(f"[{letters}]+") for script, letters in RANGES.items()
}
# Chinese text has almost no kana (の on a shop sign); Japanese prose is half kana.
_KANA_IN_JAPANESE: Final = 0.2


def dominant_script(text: str) -> Script | Literal["none"]:
    """Return the main script of a text: "han" is Chinese, "kana" Japanese, "hangul" Korean.

    A word of an alphabet weighs as much as one Han, kana or Hangul character, so a Chinese question
    about ``sentence_transformers`` is Chinese. Han with at least a fifth of kana is Japanese;
    Japanese written in Han alone cannot be distinguished from Chinese.

    Examples:
        >>> dominant_script("请用 Python 写一个 BM25"), dominant_script("what does 火 mean?")
        ('han', 'latin')
        >>> dominant_script("東京タワーへ行く"), dominant_script("검색 증강 생성")
        ('kana', 'hangul')
        >>> dominant_script("42 + 1 = ?")
        'none'

    """
    looked_at = normal(text[:_LOOKED_AT])
    weights: dict[Script, int] = {}
    for script in RANGES:
        runs = _RUNS[script].findall(looked_at)
        weights[script] = sum(map(len, runs)) if script in _SYLLABIC else len(runs)
    if weights["kana"] >= _KANA_IN_JAPANESE * (weights["kana"] + weights["han"]):
        weights["kana"] += weights.pop("han")
    best = max(weights, key=weights.__getitem__)
    return best if weights[best] else "none"


def language_of(*texts: str) -> str:
    """Return ``zh`` if texts are mainly Chinese, else ``en``."""
    return "zh" if dominant_script(" ".join(texts)) == "han" else "en"


def share_outside(text: str, languages: Iterable[str]) -> float:
    """Return the share of letters in scripts that no language uses, in [0, 1]; 0 without letters.

    Languages are codes of `LANGUAGES`, perhaps with a region; 2,000 characters of the text count.

    Examples:
        >>> share_outside("What is BM25?", ["en"]), share_outside("什么是 BM", ["en"])
        (0.0, 0.6)

    """
    if text.isascii() and "en" in languages:
        return 0.0
    letters = "".join(filter(str.isalpha, normal(text[:_LOOKED_AT])))
    codes_known = {language.partition("-")[0] for language in languages}
    scripts: list[Script] = [
        script for script, codes in LANGUAGES.items() if codes_known.intersection(codes.split())
    ]
    inside = sum(len(run) for script in scripts for run in _RUNS[script].findall(letters))
    return 1 - inside / len(letters) if letters else 0.0


# Letters that NFKC does not change, and signs that end a word with or without it. A text of only
# these skips NFKC: its handling of full-width commas is a third of the time on Chinese text.
_UNSETTLED: Final = re.compile(
    "[^\x00-\x7f"
    "\u00a0\u00ab\u00b0\u00b1\u00b7\u00bb\u00c0-\u0131\u014a-\u017e\u0391-\u03c9\u0400-\u045f"
    "\u2013\u2014\u2018-\u201e\u2022\u2026\u2032\u203b\u2190-\u2193\u2500-\u257f\u25a0-\u2606"
    "\u3000-\u3002\u3005\u3008-\u3011\u3014-\u301b\u3041-\u3096\u30a1-\u30fe"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "！％（），／：；？～]"  # noqa: RUF001 - full-width on purpose
)
# Invisible inside a word: soft hyphen, Arabic tatweel, zero-width spaces and joiners, marks and
# embeddings of writing direction, blank Hangul and Khmer letters, variation selectors, tags.
_INVISIBLE_RANGES: Final = (
    "\u00ad\u034f\u061c\u0640\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e01ef"
)
_INVISIBLE: Final = re.compile(f"[{_INVISIBLE_RANGES}]")
# Khmer, Thai, Lao and Burmese mark the boundaries of some words by a zero-width space.
_BLOCKS: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"
_ZERO_WIDTH_SPACE: Final = "\u200b"
_BOUNDARY: Final = re.compile(
    f"(?<=[{_BLOCKS}]){_ZERO_WIDTH_SPACE}|{_ZERO_WIDTH_SPACE}(?=[{_BLOCKS}])"
)
# What Arabic, Persian and Urdu keyboards type for the same letter or sign, and the Arabic one.
_ARABIC: Final = {
    "\u064a": "\u0649\u06cc",  # yeh: alef maksura, Farsi yeh
    "\u0643": "\u06a9",  # kaf: keheh
    "\u0647": "\u06be\u06c0-\u06c2\u06d5",  # heh: doachashmee, goal, ae, with hamza
    "\u0629": "\u06c3",  # teh marbuta: goal
    "\u0627": "\u0671",  # alef: wasla
    ".": "\u066b",  # decimal separator
    ",": "\u066c",  # thousands separator
}


# Beyond 16 bits, one range with all digits: a pattern tests such ranges one by one.
_FIRST_RARE, _LAST_RARE = 0x10000, 0x1FC00


class _Variants(dict[int, str | int | None]):
    """The table of `_variant`, for ``str.translate``."""

    def __missing__(self, code: int) -> int | None:
        return code if _FIRST_RARE <= code <= _LAST_RARE else None  # what is invisible goes


@cache  # lazy: finding Unicode's digits takes about ten milliseconds
def _variant() -> tuple[re.Pattern[str], _Variants]:
    """Return a pattern of the characters that have a plain form, or none, and their table."""
    digits = [character for character in map(chr, range(0x80, _LAST_RARE)) if character.isdecimal()]
    table = _Variants({ord(digit): str(unicodedata.decimal(digit)) for digit in digits})
    for plain, variants in _ARABIC.items():
        codes = [code for code in range(0x640, 0x700) if re.match(f"[{variants}]", chr(code))]
        table.update(dict.fromkeys(codes, plain))
    frequent = "".join(chr(code) for code in table if code < _FIRST_RARE)
    rare = f"{chr(_FIRST_RARE)}-{chr(_LAST_RARE)}"
    return re.compile(f"[{_INVISIBLE_RANGES}{frequent}{rare}]+"), table


# NFKC sorts the marks on a letter in quadratic time. No real letter has 32 marks.
_PILE: Final = re.compile(r"([^\w\s]{32})[^\w\s]+")


def normal(text: str) -> str:
    r"""Return the text in NFKC, without invisible characters; case is kept.

    Digits of all scripts become 0 to 9, and the letters that Arabic, Persian and Urdu keyboards
    type differently become one. A zero-width space is a space beside Thai, Lao, Khmer and Burmese.
    A full-width comma still ends a word, because Chinese lists numbers with it. A run of more than
    32 signs and marks is cut to 32.

    Examples:
        >>> normal("\uff23\uff0b\uff0b ﾊﾟﾘ ﬁne co\u00adop \u0968\u0966\u0968\u096a")
        'C++ パリ fine coop 2024'

    """
    if text.isascii() or not _UNSETTLED.search(text):
        return text
    if _ZERO_WIDTH_SPACE in text:
        text = _BOUNDARY.sub(" ", text)
    pattern, table = _variant()
    text = pattern.sub(lambda variant: variant[0].translate(table), text)
    text = _PILE.sub(r"\1", text).replace("，", "、")  # noqa: RUF001
    return unicodedata.normalize("NFKC", text)


# Sorting the marks on a letter takes quadratic time; no path is longer.
_LONGEST_NAME: Final = 4096


def valid_text(text: str) -> str:
    r"""Return a text with U+FFFD for each lone surrogate, as a badly decoded file has them.

    Examples:
        >>> valid_text("caf\udce9") == "caf\ufffd"
        True

    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def composed(name: str) -> str:
    """Return a name in NFC; text that is longer than any path as it is."""
    is_other = not name.isascii() and len(name) <= _LONGEST_NAME
    return unicodedata.normalize("NFC", name) if is_other else name


def spellings(name: str) -> list[str]:
    r"""Return a name as it is, composed and decomposed, each once.

    Keyboards type composed letters, and some file systems name files in decomposed ones.

    Examples:
        >>> [*map(len, spellings("\u00e9"))], spellings("plain")
        ([1, 2], ['plain'])

    """
    if name.isascii() or len(name) > _LONGEST_NAME:
        return [name]
    return list(dict.fromkeys([name, composed(name), unicodedata.normalize("NFD", name)]))


# A hyphen at the end of a line, as in a PDF, between parts of a word.
_BROKEN: Final = re.compile(r"(?<=[^\W_])([-\u00ad\u2010])[ \t]*\r?\n[ \t]*(?=[^\W_])")


def without_broken_words(text: str) -> str:
    r"""Return the text with words that a hyphen breaks at the end of a line on one line.

    A word with a hyphen is found joined and by its parts, so both ``retrieval`` and ``well-known``
    are found where they are broken.

    Examples:
        >>> without_broken_words("The retrie-\nval of well-\n known texts - and\n- lists")
        'The retrie-val of well-known texts - and\n- lists'

    """
    return _BROKEN.sub(r"\1", text) if "\n" in text else text


def aligned(text: str) -> tuple[str, Sequence[int]]:
    """Return the `normal` text without broken words, and the original index of each character.

    Examples:
        >>> aligned("ﬁre")
        ('fire', [0, 0, 1, 2])

    """
    broken = _BROKEN.finditer(text) if "\n" in text else ()
    gaps = [range(match.end(1), match.end()) for match in broken]
    if gaps:
        left_out = {index for gap in gaps for index in gap}
        kept = [index for index in range(len(text)) if index not in left_out]
        plain, places = aligned("".join(text[index] for index in kept))
        return plain, [kept[place] for place in places]
    if text.isascii() or not _UNSETTLED.search(text):
        return text, range(len(text))
    if unicodedata.is_normalized("NFKC", text) and not _INVISIBLE.search(text):
        plain = normal(text)
        if len(plain) == len(text):
            return plain, range(len(text))
    text = _BOUNDARY.sub(" ", text)
    characters: list[str] = []
    offsets: list[int] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or not _continues(text[end]):
            part = normal(text[start:end]).replace("，", "、")  # noqa: RUF001 - as in the whole text
            part = unicodedata.normalize("NFKC", part)
            characters.append(part)
            offsets.extend([start] * len(part))
            start = end
    return "".join(characters), offsets


def _continues(character: str) -> bool:
    """Return whether NFKC may join a character to the one before: a mark, a Korean vowel or end."""
    return (
        unicodedata.category(character)[0] == "M"
        or "\u1160" <= character <= "\u11ff"
        or character in "\uff9e\uff9f"  # half-width Japanese voicing marks
        or _INVISIBLE.match(character) is not None
    )


# The traditional characters, and the simplified one of each: the transform Traditional-Simplified
# of Unicode's CLDR 42 on single characters (UNICODE-LICENSE.txt). Where several become one (後 and
# 后, 髮 and 發), the surrounding words still differ.
_TRADITIONAL: Final = Path(__file__).with_name("traditional_chinese.txt").read_text("utf-8").split()
_SIMPLIFIED: Final = str.maketrans(*_TRADITIONAL)


def simplified(run: str) -> str:
    """Return the run with each traditional Chinese character simplified.

    So questions from Taiwan and Hong Kong find texts from the mainland, and the reverse, also in
    collections with both, such as Wikipedia. The conversion is by character, not by word: text and
    question are converted in the same way, so the correct form does not matter. Japanese is not
    harmed: two different pairs of its characters almost never become the same.

    Examples:
        >>> simplified("臺灣的軟體"), simplified("软件"), simplified("東京タワー")
        ('台湾的软体', '软件', '东京タワー')

    """
    return run.translate(_SIMPLIFIED)


# Canonical combining classes of the marks to drop: overlays, Hebrew points, Arabic and Syriac
# vowel signs, and all marks above, below or beside a letter. Marks that make another letter are
# kept: nukta (7), kana voicing (8), virama (9), Thai and Lao tones (103 to 122).
_DROPPED: Final = frozenset({1, *range(10, 37), *range(202, 241)})
# On a Cyrillic letter only these two marks make another letter (й, ї, ў).
_CYRILLIC_LETTER_MARKS: Final = "\u0306\u0308"
# Letters that look accented but have no decomposition, and the Cyrillic letter that is mostly
# typed without its dots.
_LETTERS: Final = str.maketrans(
    {
        "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ł": "l", "ŧ": "t", "æ": "ae", "œ": "oe",
        "þ": "th", "\N{LATIN SMALL LETTER DOTLESS I}": "i", "ё": "\N{CYRILLIC SMALL LETTER IE}",
    }
)  # fmt: skip


def fold(word: str) -> str:
    """Return the word without accents: typed French, Spanish or Vietnamese often lacks them.

    Latin, Greek, Hebrew and Arabic lose their marks; Cyrillic loses only stress marks and the dots
    of ё; other scripts keep all marks that make another letter.

    Examples:
        >>> [fold(word) for word in ("école", "smørrebrød", "đường", "мой", "ёлка")]
        ['ecole', 'smorrebrod', 'duong', 'мой', 'елка']

    """
    if word.isascii():
        return word
    kept: list[str] = []
    for char in unicodedata.normalize("NFD", word):
        is_cyrillic = bool(kept) and "\u0400" <= kept[-1] <= "\u052f"
        makes_a_letter = is_cyrillic and char in _CYRILLIC_LETTER_MARKS
        if makes_a_letter or unicodedata.combining(char) not in _DROPPED:
            kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept)).translate(_LETTERS)
