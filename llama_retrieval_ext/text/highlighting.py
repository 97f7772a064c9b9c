"""Highlights: positions of query terms, the sentence nearest to a question, and excerpts."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from llama_retrieval_ext.text.normalization import aligned, normal, without_broken_words
from llama_retrieval_ext.text.segmentation import (
    has_unspaced,
    piece_matches,
    starts_unspaced,
    term_id,
    units,
)
from llama_retrieval_ext.text.tokenizer import Tokenizer

Embed: TypeAlias = Callable[[list[str]], Sequence[Sequence[float]]]

_TOKENIZER: Final = Tokenizer()
_SENTENCE_END: Final = re.compile(r"(?<![.!?])[.!?]++(?=\s|$)|[。！？\n]")  # noqa: RUF001
# Characters of a text whose sentences are compared with a question.
_COMPARED: Final = 20_000
# Characters of context before the first match of an excerpt.
_LEAD: Final = 60
_CHUNK: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Question:
    """What a hit was found for, for its highlights.

    Attributes:
        text: The question as it was searched: corrected.
        tokenizer: That of the keyword search; None for the default.
        synonyms: What it was also searched for.
    """

    text: str
    tokenizer: Tokenizer | None = None
    synonyms: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The text and the synonyms."""
        return " ".join([self.text, *self.synonyms])

    def __deepcopy__(self, memo: object) -> "Question":
        return self


@dataclass(frozen=True, slots=True)
class Highlight:
    """A part of a hit that answers its question.

    Attributes:
        field: ``text``, ``headings``, or a metadata key.
        start: Its start in the text of the field, in characters.
        end: The position after it.
        text: The part.
        item: Index in the field if that is a list; ``start`` and ``end`` are in the item.
        by: ``words`` for a word of the question, ``meaning`` for the sentence nearest to a question
            that shares no word with the hit.
    """

    field: str
    start: int
    end: int
    text: str
    item: int | None = None
    by: Literal["words", "meaning"] = "words"

    def to_dict(self) -> dict[str, object]:
        """Return the highlight as JSON."""
        shown = asdict(self)
        return shown if self.item is not None else {k: v for k, v in shown.items() if k != "item"}


def highlights_by_words(
    fields: Iterable[tuple[str, int | None, str]], question: Question
) -> tuple[Highlight, ...]:
    """Return the words of a question in fields: their names, the index in a list, and texts."""
    fields, tokenizer = [*fields], question.tokenizer or _TOKENIZER
    # Most fields have none: all are looked through at once, then those that have one.
    chunks = _chunks(" | ".join(text for *_, text in fields), question.words, tokenizer)
    return tuple(
        Highlight(name, start, end, text[start:end], item)
        for name, item, text in (fields if chunks else ())
        if "\n" in text or not text.isascii() or not chunks.isdisjoint(text.split())
        for start, end in _spans(text, chunks, question.words, tokenizer)
    )


def highlights_by_meaning(
    text: str, question: Question, embed: Embed | None = None
) -> tuple[Highlight, ...]:
    """Return the sentence of a text that is nearest to a question; see `nearest_sentence`."""
    span = nearest_sentence(text, question.text, embed)
    return () if span is None else (Highlight("text", *span, text[slice(*span)], by="meaning"),)


def matched_spans(
    text: str, question: str, tokenizer: Tokenizer | None = None
) -> list[tuple[int, int]]:
    """Return the start and end of each term of a question in a text, in order.

    Examples:
        >>> text = "Annual leaves: 年假规定"
        >>> [text[start:end] for start, end in matched_spans(text, "leave 年假规")]
        ['leaves', '年假规']

    """
    tokenizer = tokenizer or _TOKENIZER
    chunks = _chunks(text, question, tokenizer)
    return _spans(text, chunks, question, tokenizer) if chunks else []


def _spans(
    text: str, chunks: Collection[str], question: str, tokenizer: Tokenizer
) -> list[tuple[int, int]]:
    plain, offsets = aligned(text)
    terms, _ = _question_terms(question, tokenizer)
    spans: list[tuple[int, int]] = []
    for chunk in _CHUNK.finditer(plain):
        if chunk[0] in chunks:
            inside = _spans_in_chunk(chunk[0], terms, tokenizer)
            spans += [(chunk.start() + start, chunk.start() + end) for start, end in inside]
    ends = [*offsets[1:], len(text)]
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        start, end = offsets[first], max(ends[last - 1], offsets[first] + 1)
        if merged and start < merged[-1][1]:  # pairs of neighbours overlap
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def _chunks(text: str, question: str, tokenizer: Tokenizer) -> set[str]:
    """Return the parts of a text in NFKC between spaces that may have a term of a question."""
    plain = normal(without_broken_words(text))
    _, ids = _question_terms(question, tokenizer)
    chunks, is_unspaced = {*plain.split()}, not plain.isascii() and has_unspaced(plain)
    # Finding the words in a chunk takes most of the time, and its terms are in a cache.
    return {
        chunk
        for chunk, terms in zip(chunks, tokenizer.chunk_ids(chunks), strict=True)
        if not ids.isdisjoint(memoryview(terms).cast("I")) or (is_unspaced and has_unspaced(chunk))
    }


@lru_cache(maxsize=256)
def _question_terms(question: str, tokenizer: Tokenizer) -> tuple[frozenset[str], frozenset[int]]:
    """Return the terms of a question, and their ids."""
    terms = frozenset(tokenizer.query_tokens(question))
    return terms, frozenset(map(term_id, terms))


def _spans_in_chunk(
    chunk: str, terms: frozenset[str], tokenizer: Tokenizer
) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for piece in piece_matches(chunk):
        if starts_unspaced(piece[0]):
            spans += _spans_in_run(piece[0], piece.start(), terms)
        elif not terms.isdisjoint(tokenizer.word_tokens(piece[0])):
            spans.append(piece.span())
    return spans


def _spans_in_run(run: str, start: int, terms: Collection[str]) -> Iterator[tuple[int, int]]:
    before = ""
    for unit in units(run):
        end = start + len(unit)
        if unit in terms:
            yield start, end
        if before + unit in terms:
            yield start - len(before), end
        before, start = unit, end


def nearest_sentence(
    text: str, question: str, embed: Embed | None = None
) -> tuple[int, int] | None:
    """Return the start and end of the sentence nearest to a question; None without a sentence.

    With ``embed`` by the inner product of embeddings, else by shared pairs of letters (cosine).

    Examples:
        >>> text = "Welcome. Our holidays are long! Bye."
        >>> start, end = nearest_sentence(text, "holiday")
        >>> text[start:end]
        'Our holidays are long!'

    """
    text = text[:_COMPARED]
    ends = [0, *(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]
    spans: list[tuple[int, int]] = []
    for first, last in pairwise(ends):
        sentence = text[first:last].strip()
        if any(map(str.isalnum, sentence)):
            start = text.index(sentence, first)
            spans.append((start, start + len(sentence)))
    if len(spans) < 2:  # noqa: PLR2004 - nothing to compare
        return spans[0] if spans else None
    texts = [text[start:end] for start, end in spans]
    if embed is None:
        pairs, *others = (Counter(map("".join, pairwise(t.casefold()))) for t in (question, *texts))
        likeness = [
            sum(pairs[pair] * count for pair, count in other.items()) / (other.total() or 1)
            for other in others
        ]
    else:
        asked, *others_ = embed([question, *texts])
        likeness = [sum(a * b for a, b in zip(asked, other, strict=True)) for other in others_]
    return spans[max(range(len(spans)), key=likeness.__getitem__)]


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
    terms = [line[first:end].casefold() for first, end in spans]
    # A window slides over the spans; it counts each term.
    window: Counter[str] = Counter()
    last, start, most = 0, 0, 0
    for number, (first, _) in enumerate(spans):
        from_here = max(0, min(first - lead, len(line) - length))
        while last < len(spans) and spans[last][1] <= from_here + length:
            window[terms[last]] += 1
            last += 1
        if len(window) > most:
            start, most = from_here, len(window)
        if last > number:
            window[terms[number]] -= 1
            if not window[terms[number]]:
                del window[terms[number]]
        last = max(last, number + 1)
    space = line.find(" ", start, start + lead) if start else -1
    start = space + 1 if space >= 0 else start
    cut = line[start : start + length]
    return f"{'…' if start else ''}{cut}{'…' if start + length < len(line) else ''}"
