"""The part of a passage that a reader should see first, and the words in it that matched."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from textwrap import dedent
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from llama_retrieval_ext.cli.output import console, one_line
from llama_retrieval_ext.text.scripts import CJK
from llama_retrieval_ext.text.tokenizer import Tokenizer

_SENTENCE_END = re.compile(r"[.!?:][\"')\]]*\s+|[。！？；]")  # noqa: RUF001 - Chinese punctuation
_BLOCK = re.compile(r"(?:[^\n]*\S[^\n]*(?:\n|$))+")
_FENCE = "```"
_WORD = re.compile(rf"[^\W{CJK}]+(?:[.'’&-][^\W{CJK}]+)*(?:\+\+|#)?")  # noqa: RUF001
_CJK_TERM = re.compile(rf"[{CJK}]+")
_TOKENIZER = Tokenizer()


class _Piece(NamedTuple):
    """A sentence, or a block of code."""

    text: str
    is_code: bool


def quote(text: str, question: str, *, width: int, lines: int) -> list[str]:
    """Lines of a passage, from the sentence on that shares most terms with the question.

    They end with a word. Code keeps its lines and is quoted as a whole or left out, unless the
    quotation begins with it.

    Args:
        text: The passage.
        question: The query.
        width: How many columns a line of prose has at most.
        lines: How many lines there are at most.

    Examples:
        >>> quote("Welcome. Leave is 25 days. Lunch is free.", "days of leave", width=25, lines=1)
        ['Leave is 25 days. Lunch …']

    """
    terms = set(_TOKENIZER.query_tokens(question))
    pieces = list(_with_code_joined(_pieces(text)))
    shared = [len(terms.intersection(_TOKENIZER.tokens(piece.text))) for piece in pieces]
    start = shared.index(max(shared)) if shared else 0
    return _fitted(pieces[start:], width, lines)


def matched_spans(text: str, question: str) -> list[tuple[int, int]]:
    """Where the terms of a question stand in a text: start and end of each, in order.

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
    for term in filter(_CJK_TERM.fullmatch, terms):
        spans += [match.span() for match in re.finditer(term, text)]
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:  # pairs of Chinese characters overlap
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def _pieces(text: str) -> Iterator[_Piece]:
    before, is_fenced = _Piece("", is_code=False), False
    for match in _BLOCK.finditer(text):
        block = match[0]
        is_code = is_fenced or _begins_as_code(block, before)
        is_fenced ^= bool(block.count(_FENCE) % 2)
        if is_code:
            before = _Piece(dedent(block).rstrip(), is_code=True)
            yield before
            continue
        ends = [match.end() for match in _SENTENCE_END.finditer(block)]
        for start, end in pairwise(sorted({0, *ends, len(block)})):
            before = _Piece(block[start:end], is_code=False)
            yield before


def _with_code_joined(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    for is_code, group in groupby(pieces, key=lambda piece: piece.is_code):
        if is_code:
            yield _Piece("\n\n".join(piece.text for piece in group), is_code=True)
        else:
            yield from group


def _begins_as_code(block: str, before: _Piece) -> bool:
    is_indented = block.startswith((" ", "\t"))
    is_example = before.is_code or before.text.rstrip().endswith(":")
    return block.lstrip().startswith((">>>", _FENCE)) or (is_indented and is_example)


def _fitted(pieces: Sequence[_Piece], width: int, lines: int) -> list[str]:
    kept: list[str] = []
    for number, piece in enumerate(pieces, start=1):
        longer = _lines(pieces[:number], width)
        if len(longer) > lines:
            return _unfinished(kept if piece.is_code and kept else longer[:lines], width)
        kept = longer
    return kept


def _lines(pieces: Sequence[_Piece], width: int) -> list[str]:
    lines: list[str] = []
    for is_code, group in groupby(pieces, key=lambda piece: piece.is_code):
        if is_code:
            lines += next(group).text.split("\n")
        else:
            prose = one_line("".join(piece.text for piece in group))
            lines += [line.plain.rstrip() for line in Text(prose).wrap(console(), width)]
    return lines


def _unfinished(lines: Sequence[str], width: int) -> list[str]:
    *others, last = lines
    is_short = cell_len(last) + 2 <= width
    return [*others, f"{last} …" if is_short else one_line(f"{last} …", cells=width)]
