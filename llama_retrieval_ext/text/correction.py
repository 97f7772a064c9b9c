"""Correction of typing errors in a question, by the words of the texts that it searches."""

import re
from collections.abc import Collection, Hashable, Iterator
from typing import Final, NamedTuple

from llama_retrieval_ext.text.normalization import UNSPACED
from llama_retrieval_ext.text.vocabulary import LEAST_LETTERS, Vocabulary

_LETTERS: Final = rf"[^\W\d_{UNSPACED}]+"
# Between spaces: words with their punctuation. Whatever else stands there, as in "f(x)", "a.b",
# "--all" or "v2", is code, a number or a name.
_WORDS: Final = re.compile(
    rf"(?<!\S)[(\[{{\"'“‘„«¿¡]*(?P<words>{_LETTERS}(?:-{_LETTERS})*)(?:['’]s)?"  # noqa: RUF001
    r"[)\]}\"'”’“».,;:!?…]*(?!\S)"  # noqa: RUF001
)
_WORD: Final = re.compile(_LETTERS)
# Text in quotation marks, or in the signs of code.
_QUOTED: Final = re.compile(
    r"\"[^\"]*\"|“[^“”]*”|„[^„“”]*[“”]|«[^«»]*»|`[^`]*`|「[^「」]*」|『[^『』]*』"
    r"|(?<!\w)'[^']*'(?!\w)|(?<!\w)‘[^‘’]*’(?!\w)"  # noqa: RUF001
)
# A question with more words is a pasted document.
_MOST_WORDS: Final = 32


class Replacement(NamedTuple):
    """A part of a question, and the words of the texts that replace it."""

    start: int
    end: int
    typed: str
    meant: str


def replacements(
    text: str, vocabulary: Vocabulary, groups: Collection[Hashable]
) -> list[Replacement]:
    """Return the words of a question that no text of the groups has, with the nearest that one has.

    Words in quotation marks, in code, in capitals or with digits stay, and so do words of scripts
    without spaces, and stop words.

    Examples:
        >>> from llama_retrieval_ext.text.tokenizer import Tokenizer
        >>> words = Vocabulary(Tokenizer())
        >>> words.put("n1", "The database has the annual leave of each employee.", "")
        >>> [found[2:] for found in replacements('emploee "anual" anual data base', words, [""])]
        [('emploee', 'employee'), ('anual', 'annual'), ('data base', 'database')]

    """
    spans = [*_spans(text)]
    if not any(end - start >= LEAST_LETTERS for start, end in spans) or len(spans) > _MOST_WORDS:
        return []
    unknown = [vocabulary.is_unknown(text[slice(*span)], groups) for span in spans]
    if any(unknown):  # which no search looks for are no errors
        tokenizer = vocabulary.tokenizer
        searched = frozenset(tokenizer.query_tokens(text))
        unknown = [
            is_unknown and not searched.isdisjoint(tokenizer.tokens(text[slice(*span)]))
            for is_unknown, span in zip(unknown, spans, strict=True)
        ]
    corrections: list[Replacement] = []
    for at, (start, end) in enumerate(spans if any(unknown) else ()):
        after = spans[at + 1][1] if any(unknown[at : at + 2]) and at + 1 < len(spans) else start
        pair, is_done = text[start:after], bool(corrections) and corrections[-1].end > start
        joined = pair.replace(" ", "", 1)
        if not is_done and joined.isalpha() and vocabulary.frequency(joined, groups):
            corrections.append(Replacement(start, after, pair, joined))
        elif not is_done and unknown[at]:
            typed = text[start:end]
            meant = vocabulary.nearest(typed, groups)
            if meant is None:
                meant = " ".join(vocabulary.parts(typed, groups) or ())
            if meant:
                as_typed = meant[0].upper() + meant[1:] if typed[0].isupper() else meant
                corrections.append(Replacement(start, end, typed, as_typed))
    return corrections


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of the words that may be typing errors, or parts of them."""
    quoted = [match.span() for match in _QUOTED.finditer(text)]
    number = 0
    for match in _WORDS.finditer(text):
        for word in _WORD.finditer(text, *match.span("words")):
            start, end = word.span()
            while number < len(quoted) and quoted[number][1] <= start:
                number += 1
            is_quoted = number < len(quoted) and quoted[number][0] < end
            if not is_quoted and (end - start == 1 or not word[0].isupper()):
                yield start, end
