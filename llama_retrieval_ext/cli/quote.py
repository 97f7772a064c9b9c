"""The part of a passage that a reader should see first, and the words in it that matched."""

import re
from itertools import pairwise

from rich.cells import cell_len

from llama_retrieval_ext.cli.output import one_line
from llama_retrieval_ext.text.scripts import CJK
from llama_retrieval_ext.text.tokenizer import Tokenizer

_END = re.compile(r"[.!?:][\"')\]]*\s+|[。！？；]|\n\s*\n")  # noqa: RUF001 - Chinese punctuation
_BLOCK_END = re.compile(r"\n\s*?\n")
_CODE_SIGNS = (">>>", "```")
_WORD = re.compile(rf"[^\W{CJK}]+(?:[.'’&-][^\W{CJK}]+)*(?:\+\+|#)?")  # noqa: RUF001
_CJK_TERM = re.compile(rf"[{CJK}]+")
_TOKENIZER = Tokenizer()


def quote(text: str, question: str, *, cells: int) -> str:
    """One line of a passage, from the sentence on that shares most terms with the question.

    It ends with a word. Of a block of code it holds all or nothing, unless it begins with one.

    Args:
        text: The passage.
        question: The query.
        cells: How many columns there are.

    Examples:
        >>> quote("Welcome. Leave is 25 days. Lunch is free.", "days of leave", cells=25)
        'Leave is 25 days. Lunch…'

    """
    terms = set(_TOKENIZER.query_tokens(question))
    starts = [0, *(match.end() for match in _END.finditer(text))]
    shared = [
        len(terms.intersection(_TOKENIZER.tokens(text[start:end])))
        for start, end in pairwise([*starts, len(text)])
    ]
    return _cut(text[starts[shared.index(max(shared))] :], cells)


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


def _cut(text: str, cells: int) -> str:
    whole = one_line(text)
    if cell_len(whole) <= cells:
        return whole
    kept, before = "", ""
    for block in _BLOCK_END.split(text):
        longer = f"{kept} {one_line(block)}".strip()
        if cell_len(f"{longer} …") > cells:
            is_left_out = kept and _is_code(block, before)
            return f"{kept} …" if is_left_out else one_line(f"{longer} …", cells=cells)
        kept, before = longer, block
    return kept


def _is_code(block: str, before: str) -> bool:
    is_example = before.rstrip().endswith(":") and block.startswith((" ", "\t"))
    return is_example or block.lstrip().startswith(_CODE_SIGNS)
