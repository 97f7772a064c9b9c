"""Detection of the writing system of a text, to separate Chinese, Japanese and English queries.

Supported writing systems, as ranges for a regular expression's ``[...]``.

Letters after NFKC only: no half-width, full-width or presentation forms.
"""

import re
import unicodedata
from collections.abc import Iterable
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

RANGES: Final[dict[Script, str]] = {
    "latin": "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u1e00-\u1eff",
    "cyrillic": "\u0400-\u0481\u048a-\u052f",
    "greek": "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u03ff\u1f00-\u1fbc",
    "armenian": "\u0531-\u0556\u0561-\u0587",
    "hebrew": "\u05d0-\u05ea\u05ef-\u05f2",
    "arabic": "\u0620-\u064a\u066e\u066f\u0671-\u06d3\u0750-\u077f",
    "devanagari": "\u0900-\u0963\u0971-\u097f",
    "tamil": "\u0b80-\u0bd7",
    "thai": "\u0e01-\u0e3a\u0e40-\u0e4e",
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
    weights: dict[Script, int] = {s: _weight(s, text=looked_at) for s in RANGES}
    if weights["kana"] >= _KANA_IN_JAPANESE * (weights["kana"] + weights["han"]):
        weights["kana"] += weights.pop("han")
    best = max(weights, key=weights.__getitem__)
    return best if weights[best] else "none"


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
    known = {each.partition("-")[0] for each in languages}
    scripts: list[Script] = [
        script for script, codes in LANGUAGES.items() if known.intersection(codes.split())
    ]
    inside = sum(len(run) for script in scripts for run in _RUNS[script].findall(letters))
    return 1 - inside / len(letters) if letters else 0.0


def _weight(script: Script, *, text: str) -> int:
    found: list[str] = _RUNS[script].findall(text)
    return sum(map(len, found)) if script in _SYLLABIC else len(found)


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
# Invisible inside a word: soft hyphen, Arabic tatweel, zero-width joiners, byte order
# mark, variation selectors.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u0640\u200c\u200d\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]+"
)
# NFKC sorts the marks on a letter in quadratic time. No real letter has 32 marks.
_PILE: Final = re.compile(r"([^\w\s]{32})[^\w\s]+")


def normal(text: str) -> str:
    r"""Return the text in NFKC, without invisible characters; case is kept.

    A full-width comma still ends a word, because Chinese lists numbers with it. A run of more than
    32 signs and marks is cut to 32.

    Examples:
        >>> normal("\uff23\uff0b\uff0b ﾊﾟﾘ ﬁne co\u00adop")
        'C++ パリ fine coop'

    """
    if text.isascii() or not _UNSETTLED.search(text):
        return text
    text = _PILE.sub(r"\1", _INVISIBLE.sub("", text)).replace("，", "、")  # noqa: RUF001
    return unicodedata.normalize("NFKC", text)


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
