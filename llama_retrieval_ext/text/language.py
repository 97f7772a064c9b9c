"""Which writing system a text is in, to tell Chinese, Japanese and English queries apart."""

import re
from typing import Final, Literal

from llama_retrieval_ext.text.normal import normal
from llama_retrieval_ext.text.scripts import RANGES, Script

_LOOKED_AT: Final = 2000
# A character of these says about as much as a word of the others.
_SYLLABIC: Final = frozenset({"han", "kana", "hangul"})
_RUNS: Final[dict[Script, re.Pattern[str]]] = {
    script: re.compile(f"[{letters}]+") for script, letters in RANGES.items()
}
# Chinese has hardly any kana (の on a shop sign); Japanese prose is half kana.
_KANA_IN_JAPANESE: Final = 0.2


def dominant_script(text: str) -> Script | Literal["none"]:
    """The script that says most of a text: "han" is Chinese, "kana" Japanese, "hangul" Korean.

    A word of an alphabet weighs as much as one Han, kana or Hangul character, so a Chinese question
    about ``sentence_transformers`` is Chinese. Han with at least a fifth of kana is Japanese;
    Japanese written in Han alone cannot be told from Chinese.

    Args:
        text: Any text; the first 2,000 characters are looked at.

    Returns:
        The script; of two with the same weight the first in `RANGES`; "none" without a letter of
        any of them.

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


def _weight(script: Script, *, text: str) -> int:
    found: list[str] = _RUNS[script].findall(text)
    return sum(map(len, found)) if script in _SYLLABIC else len(found)
