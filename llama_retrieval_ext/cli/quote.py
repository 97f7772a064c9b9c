"""The part of a passage that a reader should see first."""

import re
from itertools import pairwise

from llama_retrieval_ext.cli.output import one_line
from llama_retrieval_ext.text.tokenizer import Tokenizer

_END = re.compile(r"[.!?:][\"')\]]*\s+|[。！？；]|\n\s*\n")  # noqa: RUF001 - Chinese punctuation
_TOKENIZER = Tokenizer()


def quote(text: str, question: str, *, cells: int) -> str:
    """One line of a passage, from the sentence on that shares most terms with the question.

    Args:
        text: The passage.
        question: What was asked.
        cells: How many columns there are.

    Examples:
        >>> quote("Welcome. Leave is 25 days. Lunch is free.", "days of leave", cells=20)
        'Leave is 25 days. L…'

    """
    wanted = set(_TOKENIZER.query_tokens(question))
    starts = [0, *(match.end() for match in _END.finditer(text))]
    shared = [
        len(wanted.intersection(_TOKENIZER.tokens(text[start:end])))
        for start, end in pairwise([*starts, len(text)])
    ]
    return one_line(text[starts[shared.index(max(shared))] :], cells=cells)
