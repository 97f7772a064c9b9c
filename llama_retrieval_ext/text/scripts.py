"""The writing systems that are told apart, as ranges for a regular expression's ``[...]``.

Letters only, as they stand after NFKC: no half-width, full-width or presentation forms.
"""

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

# With the iteration mark, the ideographic zero and the Suzhou numerals, which stand among Han.
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
