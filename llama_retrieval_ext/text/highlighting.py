"""Positions of query terms in a text, and excerpts around them."""

import re
from bisect import bisect_right
from typing import Final

from llama_retrieval_ext.text.normalization import CJK, simplified, without_broken_words
from llama_retrieval_ext.text.tokenizer import Tokenizer

_WORD: Final = re.compile(
    rf"[^\W{CJK}]+(?:(?:[.'’&]|[-\u00ad\u2010](?:[ \t]*\r?\n[ \t]*)?)[^\W{CJK}]+)*(?:\+\+|#)?"  # noqa: RUF001
)
_CJK_TERM: Final = re.compile(rf"[{CJK}]+")
_TOKENIZER: Final = Tokenizer()
# Characters of context before the first match of an excerpt.
_LEAD: Final = 60


def matched_spans(text: str, question: str) -> list[tuple[int, int]]:
    """Return the start and end of each term of a question in a text, in order.

    Examples:
        >>> text = "Annual leaves: 年假规定"
        >>> [text[start:end] for start, end in matched_spans(text, "leave 年假规")]
        ['leaves', '年假规']

    """
    terms = set(_TOKENIZER.query_tokens(question))
    spans = [
        word.span()
        for word in _WORD.finditer(text)
        if terms.intersection(_TOKENIZER.tokens(word[0]))
    ]
    simple = simplified(text)  # as terms are; positions stay
    for term in filter(_CJK_TERM.fullmatch, terms):
        spans += [match.span() for match in re.finditer(term, simple)]
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:  # pairs of Chinese characters overlap
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def excerpt(text: str, query: str, *, length: int) -> str:
    """Return the part of a text with the most query terms, on one line.

    Examples:
        >>> excerpt("Welcome to us. " * 9 + "Annual leave is 25 days.", "annual leave", length=40)
        '…Welcome to us. Annual leave is 25 days.'

    """
    line = " ".join(without_broken_words(text).split())
    if len(line) <= length:
        return line
    lead = min(_LEAD, length // 4)
    spans = matched_spans(line, query)
    ends = [end for _, end in spans]
    start, most = 0, 0
    for number, (first, _) in enumerate(spans):
        from_here = max(0, min(first - lead, len(line) - length))
        last = bisect_right(ends, from_here + length)
        n_terms = len({line[a:b].casefold() for a, b in spans[number:last]})
        if n_terms > most:
            start, most = from_here, n_terms
    space = line.find(" ", start, start + lead) if start else -1
    start = space + 1 if space >= 0 else start
    cut = line[start : start + length]
    return f"{'…' if start else ''}{cut}{'…' if start + length < len(line) else ''}"
