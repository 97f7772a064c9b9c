"""The implementation of a tokenizer: spellings of names, its caches and its stemmer."""

import re
from collections.abc import Callable
from functools import partial
from itertools import accumulate, chain
from threading import Lock
from typing import Final

import Stemmer

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.normalization import (
    RANGES,
    Script,
    fold,
    normal,
    without_broken_words,
)
from llama_retrieval_ext.text.segmentation import (
    CONNECTORS,
    LONGEST_KEY,
    BoundedCache,
    document_grams,
    has_unspaced,
    packed_id,
    pieces,
    query_grams,
    runs,
    starts_unspaced,
    word_grams,
    words,
)

_UPPER: Final = "A-ZÀ-ÖØ-ÞΑ-ΩЀ-Я"
_LOWER: Final = rf"[^{_UPPER}\d_,{CONNECTORS}]"
_PARTS: Final = re.compile(
    rf"\d+(?:\.\d+)*"
    rf"|[{_UPPER}]{{2,}}s(?!{_LOWER})"  # APIs is the plural of API, not AP and Is
    rf"|[{_UPPER}]+(?=[{_UPPER}]{_LOWER})"
    rf"|[{_UPPER}]?{_LOWER}+"
    rf"|[{_UPPER}]+"
)
# Removed from the whole name, but not between digits: 1.2.3 is not 123.
_JOINTS: Final = re.compile(r",|(?<!\d)[.'’\-‐_]+|[.'’\-‐_]+(?!\d)")  # noqa: RUF001
_SPACERS: Final = re.compile(rf"[{CONNECTORS},_]+")
_SIGN: Final = re.compile(r"(?:\+\+|#)$")
_SIGNS: Final = ("++", "#")
_POSSESSIVES: Final = ("'s", "'S", "’s", "’S")  # noqa: RUF001
_MOST_PARTS: Final = 12


def spellings(piece: str) -> list[str]:
    """Return a name as one word without separators, then its parts, all casefolded.

    So ``userName``, ``user_name``, ``user-name`` and ``username`` find each other, and ``name``
    finds them all. A number with points also gives its prefixes, so that 3.12 finds 3.12.1. A name
    with more than 12 parts (a hash, encoded data) is split at its separators only.

    Examples:
        >>> spellings("HTTPServer2")
        ['httpserver2', 'http', 'server', '2']
        >>> spellings("1.2.3")
        ['1.2.3', '1.2', '1']
        >>> spellings("women's"), spellings("C++"), spellings("count++")
        (['women'], ['c++'], ['count++', 'count'])

    """
    if piece.isascii() and piece.isalpha() and piece[1:].islower():  # most words
        return [piece.lower()]
    name = without_possessive(piece)
    signed: list[str] = []
    if name.endswith(_SIGNS):  # C++, with the last word and its sign
        signed, name = [_SPACERS.split(name)[-1].casefold()], _SIGN.sub("", name)
    if name.startswith("."):  # .NET becomes NET, which ASP.NET also has
        signed, name = [name.casefold()], name[1:]
    elif signed and len(name) == 1:  # C++ must not match C
        return signed
    whole = (name if name.isalnum() else _JOINTS.sub("", name)).casefold()
    parts = [part.casefold() for part in _PARTS.findall(name)]
    if "." in name:  # the prefixes of a number: 1.2.3, 1.2, 1
        parts = [
            beginning
            for part in parts
            for beginning in reversed([*accumulate(part.split("."), "{}.{}".format)])
        ]
    if len(parts) > _MOST_PARTS:
        parts = [word for word in _SPACERS.split(name.casefold()) if word]
    if not whole or parts[:1] == [whole]:
        return signed + parts
    return [*signed, whole, *parts]


def plain_spellings(piece: str) -> list[str]:
    """Return the words of a name unchanged; only numbers keep their points.

    Examples:
        >>> plain_spellings("os.getUser_name"), plain_spellings("1.2.3"), plain_spellings("C#")
        (['os', 'getuser_name'], ['1.2.3'], ['c#'])

    """
    name = without_possessive(piece).casefold()
    if _SIGN.search(name) or name.startswith("."):
        return [name]
    return [word for word in _PLAIN.findall(name) if word.strip("_")]


def without_possessive(piece: str) -> str:
    """Return the word without ``'s``.

    Examples:
        >>> without_possessive("what's"), without_possessive("O'Brien")
        ('what', "O'Brien")

    """
    return piece[:-2] if piece.endswith(_POSSESSIVES) else piece


_PLAIN: Final = re.compile(rf"(?<![\w.])\d+(?:\.\d+)+(?!\w)|[^{CONNECTORS},]+")


_ENTRIES: Final = 2**15
# Signs that no word starts or ends with: "word," and "(word)" need not be analysed again.
_NO_START: Final = "!\"$%&'()*,-/:;<=>?@[\\]^`{|}~"
_NO_END: Final = f"{_NO_START}."


class Analyser:
    """Converter from text to tokens and term counts, for documents and for queries."""

    def __init__(
        self,
        *,
        language: str,
        stop_words: frozenset[str],
        segment: Callable[[str], list[str]] | None,
        split_identifiers: bool,
    ) -> None:
        self._stem = word_stemmer(language)
        self._spellings = spellings if split_identifiers else plain_spellings
        self._stop_words = stop_words
        grams = partial(word_grams, segment=segment) if segment else None
        self._document_grams = grams or document_grams
        self._query_grams = grams or query_grams
        self.words = BoundedCache[str, tuple[str, ...]](self._word, entries=_ENTRIES)
        self.chunks = BoundedCache[str, bytes](self._packed_chunk, entries=2 * _ENTRIES)

    def document(self, text: str) -> list[str]:
        """Return the tokens of a document."""
        parts = pieces(normal(without_broken_words(text)))
        return self._all(parts, self._document_grams)

    def query(self, text: str) -> tuple[list[str], list[str]]:
        """Return the tokens of a query, and of its stop words, unless it has nothing else."""
        words = pieces(normal(without_broken_words(text)))
        telling: list[str] = []
        stops: list[str] = []
        for piece in words:
            word = without_possessive(piece)
            # A word in capitals is a name: IT, US, WHO. "I" is the exception.
            is_name = len(word) > 1 and word.isupper()
            is_stop_word = word.casefold() in self._stop_words and not is_name
            (stops if is_stop_word else telling).append(piece)
        grams = self._query_grams
        tokens = self._all(telling, grams)
        return (tokens, self._all(stops, grams)) if tokens else (self._all(words, grams), [])

    def document_ids(self, text: str) -> bytes:
        """Return the term id of each token of a document, 32 bits each, in no order."""
        text = normal(without_broken_words(text))
        # Chunks between spaces, with their punctuation, repeat often: a lookup of the whole chunk
        # is four times as fast as finding its words first.
        ids = b"".join(map(self.chunks.__getitem__, text.split()))
        return ids if text.isascii() or not has_unspaced(text) else ids + self._packed_grams(text)

    def _all(self, parts: list[str], grams: Callable[[str], list[str]]) -> list[str]:
        tokens: list[str] = []
        for piece in parts:
            tokens += grams(piece) if starts_unspaced(piece) else self.words[piece]
        return tokens

    def _word(self, piece: str) -> tuple[str, ...]:
        # A combining mark on a digit folds to the empty string.
        return tuple(filter(None, map(self._stem, self._spellings(piece))))

    def _packed_chunk(self, chunk: str) -> bytes:
        """Return the term ids of the words in a chunk between spaces, without unspaced runs."""
        bare = chunk.rstrip(_NO_END).lstrip(_NO_START)
        if len(bare) < len(chunk):
            return self.chunks[bare]
        plain = len(chunk) <= LONGEST_KEY and chunk.isascii() and chunk.isalnum()
        parts = [chunk] if plain else words(chunk)
        if parts == [chunk]:
            return b"".join(map(packed_id, self._word(chunk)))
        return b"".join(map(self.chunks.__getitem__, parts))

    def _packed_grams(self, text: str) -> bytes:
        if self._document_grams is document_grams:
            from llama_retrieval_ext.text.gram_ids import packed_grams  # noqa: PLC0415 - numpy

            return packed_grams(text)
        return b"".join(map(packed_id, chain.from_iterable(map(self._document_grams, runs(text)))))


NO_STEMMING: Final = "none"
# These algorithms support only a to z, so accents are removed before stemming (résumés). The
# others use accents (French chanté, chante), so accents are removed after stemming.
_PLAIN_LETTERS: Final = frozenset({"english", "porter", "indonesian"})
_SCRIPTS: Final[dict[str, tuple[Script, ...]]] = {
    "arabic": ("arabic",),
    "armenian": ("armenian",),
    "greek": ("greek",),
    "hindi": ("devanagari",),
    "nepali": ("devanagari",),
    "russian": ("cyrillic",),
    "serbian": ("cyrillic", "latin"),
    "tamil": ("tamil",),
    "yiddish": ("hebrew",),
}


def check_language(language: str) -> None:
    """Raise if Snowball has no algorithm for a language."""
    languages = [NO_STEMMING, *Stemmer.algorithms()]
    if language not in languages:
        raise ConfigurationError(
            f"language must be a Snowball algorithm or {NO_STEMMING!r}, got {language!r}; "
            f"the algorithms are {', '.join(languages[1:])}"
        )


def word_stemmer(language: str) -> Callable[[str], str]:
    """Return a function from a casefolded word to its folded stem; it is thread-safe.

    Only words that consist of letters of the language's script are stemmed, so ``utf8`` and words
    of other scripts are not. Every word is folded.

    Examples:
        >>> [word_stemmer("english")(word) for word in ("running", "résumés", "utf8s")]
        ['run', 'resum', 'utf8s']

    """
    if language == NO_STEMMING:
        return fold
    ranges = "".join(RANGES[script] for script in _SCRIPTS.get(language, ("latin",)))
    stemmable = re.compile(f"[{ranges}]+").fullmatch
    snowball = Stemmer.Stemmer(language, 0)  # 0 disables its cache: ours has the result
    lock = Lock()  # a Snowball stemmer is not thread-safe

    def stem(word: str) -> str:
        if not stemmable(word):
            return word
        with lock:
            ending_off: str = snowball.stemWord(word)
        return ending_off or word

    if language in _PLAIN_LETTERS:
        return lambda word: stem(fold(word))
    return lambda word: fold(stem(word))
