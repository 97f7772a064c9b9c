"""Highlights: positions of query terms, the sentence nearest to a question, and excerpts."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from llama_retrieval_ext.text.normalization import aligned, normal, without_broken_words
from llama_retrieval_ext.text.segmentation import (
    has_unspaced,
    packed_id,
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
_OTHER_SPACE: Final = re.compile(r"[^\S ]")
_ID_BYTES: Final = 4


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
    fields, terms = [*fields], _terms_of(question.words, question.tokenizer or _TOKENIZER)
    texts = [normal(without_broken_words(text)) for *_, text in fields]
    # Most fields have none: all are looked through at once, then those that have one.
    chunks = [*map(str.split, texts)]
    matching = terms.matching(texts, [*chain.from_iterable(chunks)])
    return tuple(
        Highlight(name, start, end, text[start:end], item)
        for (name, item, text), parts in zip(fields, chunks, strict=True)
        if not matching.isdisjoint(parts)
        for start, end in terms.spans(text, matching)
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
    terms = _terms_of(question, tokenizer or _TOKENIZER)
    plain = normal(without_broken_words(text))
    matching = terms.matching([plain], plain.split())
    return terms.spans(text, matching) if matching else []


class _Terms(NamedTuple):
    """The terms of a question, and their ids, packed and as numbers."""

    tokenizer: Tokenizer
    tokens: frozenset[str]
    packed: frozenset[bytes]
    ids: frozenset[int]

    def matching(self, texts: Iterable[str], chunks: Sequence[str]) -> set[str]:
        """Return the parts of texts in NFKC between spaces that may have one of the terms."""
        # Finding the words in a chunk takes most of the time, and its terms are in a cache.
        ids = self.tokenizer.chunk_ids(chunks)
        matching = {
            chunk
            for chunk, packed in zip(chunks, ids, strict=True)
            if packed in self.packed
            or (len(packed) > _ID_BYTES and not self.ids.isdisjoint(memoryview(packed).cast("I")))
        }
        if any(not text.isascii() and has_unspaced(text) for text in texts):
            matching.update(filter(has_unspaced, chunks))
        return matching

    def spans(self, text: str, matching: Collection[str]) -> list[tuple[int, int]]:
        """Return the start and end of each of the terms in a text, in order."""
        plain, offsets = aligned(text)
        spans: list[tuple[int, int]] = []
        at = 0
        for chunk in _OTHER_SPACE.sub(" ", plain).split(" "):
            if chunk in matching:
                spans += [(at + start, at + end) for start, end in self._spans_in_chunk(chunk)]
            at += len(chunk) + 1
        merged: list[tuple[int, int]] = []
        for first, last in sorted(spans):
            start = offsets[first]
            end = max(offsets[last] if last < len(offsets) else len(text), start + 1)
            if merged and start < merged[-1][1]:  # pairs of neighbours overlap
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        return merged

    def _spans_in_chunk(self, chunk: str) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        for piece in piece_matches(chunk):
            if starts_unspaced(piece[0]):
                spans += _spans_in_run(piece[0], piece.start(), self.tokens)
            elif not self.tokens.isdisjoint(self.tokenizer.word_tokens(piece[0])):
                spans.append(piece.span())
        return spans


@lru_cache(maxsize=256)
def _terms_of(question: str, tokenizer: Tokenizer) -> _Terms:
    tokens = frozenset(tokenizer.query_tokens(question))
    packed = frozenset(map(packed_id, tokens))
    return _Terms(tokenizer, tokens, packed, frozenset(map(term_id, tokens)))


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
