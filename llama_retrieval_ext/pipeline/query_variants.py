"""Other wordings of a query: selection of wordings, and their queries."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from llama_retrieval_ext.query import Query
from llama_retrieval_ext.text.normalization import RANGES, Script, dominant_script


def distinct(texts: Sequence[str], *, of: str = "") -> list[str]:
    """Return the texts that differ in more than case, spaces and final punctuation.

    Examples:
        >>> distinct(["Annual  leave?", "annual leave", "days off"], of="Days off")
        ['Annual  leave?']

    """
    seen = {"", _spoken(of)}
    kept: list[str] = []
    for text in texts:
        spoken = _spoken(text)
        if spoken not in seen:
            seen.add(spoken)
            kept.append(text)
    return kept


def keeps_language(text: str, query: str) -> bool:
    """Return whether a text is in a language of the query, based on their scripts.

    The main script of each must occur in the other, so that variants of a Chinese query about
    ``parse_filters`` can contain more or less Latin.

    Examples:
        >>> keeps_language("年假有几天", "员工年假"), keeps_language("annual leave", "员工年假")
        (True, False)
        >>> keeps_language("parse_filters 的用法", "parse_filters 怎么用")
        True

    """
    scripts = dominant_script(query), dominant_script(text)
    return "none" in scripts or (_has(scripts[0], text) and _has(scripts[1], query))


def reworded(query: Query, text: str) -> Query:
    """Return the query with another text and without the embedding of the first text."""
    return replace(query, query_str=text, custom_embedding_strs=None, embedding=None)


def _spoken(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".?!。,;、")


def _has(script: Script | Literal["none"], text: str) -> bool:
    # Japanese also uses Han.
    named = ("han", "kana") if script == "kana" else (script,)
    letters = "".join(ranges for name, ranges in RANGES.items() if name in named)
    return re.search(f"[{letters}]", unicodedata.normalize("NFKC", text)) is not None
