"""The tokenizer of keyword search, as a value that a store saves with its index."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Final, Literal, TypeAlias

import Stemmer

from llama_retrieval_ext.checks import of_type, one_of
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.analyzer import Analyser, check_language, without_possessive
from llama_retrieval_ext.text.normalization import normal
from llama_retrieval_ext.text.segmentation import chinese_segmenter, has_unspaced, pieces, term_id

# Closed word classes, frequent in queries. Question words matter most: they are rare in documents,
# so BM25 would give them a high weight. Negations are included: a bag of words cannot express
# negation. Excluded are "if" and "while", which are topics of questions about code, and words that
# are also names or nouns ("may", "will", "might", "must").
# fmt: off
ENGLISH_STOP_WORDS: Final = frozenset({
    # articles, conjunctions, prepositions, particles
    "a", "an", "the", "and", "or", "but", "of", "at", "by", "for", "from", "in", "into", "on", "to",
    "with", "as", "so", "than", "then", "such", "about", "no", "nor", "not",
    # auxiliaries
    "am", "are", "be", "been", "being", "can", "could", "did", "do", "does", "had", "has", "have",
    "is", "should", "was", "were", "would",
    # question words
    "how", "what", "when", "where", "which", "who", "whom", "whose", "why",
    # pronouns and determiners
    "i", "me", "my", "we", "us", "our", "you", "your", "he", "him", "his", "she", "her", "it",
    "its", "they", "them", "their", "this", "that", "these", "those", "there", "here",
})
# fmt: on


StopWords: TypeAlias = Literal["english", "none"] | tuple[str, ...]

# Snowball 3 stems "international" and "organization" otherwise. Python 3.14 has no other.
TOKENIZER_VERSION: Final = 3 if Stemmer.version() < "3" else 4
_NAMED_STOP_WORDS: Final = {"english": ENGLISH_STOP_WORDS, "none": frozenset[str]()}
_CJK_MODES: Final = ("bigrams", "words")


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """Converter from text to terms, the same for documents and queries on every engine.

    It is a value: equal tokenizers return equal tokens, and
    ``Tokenizer.from_dict(tokenizer.to_dict())`` is equal to the original. It is thread-safe and can
    be pickled and copied; its caches (about 50 MB when full) are created on first use and are not
    copied.

    Text is normalised to NFKC and casefolded; accents are folded, so "ecole" finds "école". Words
    of one language are stemmed, names are found whole and by their parts, and ``C++``, ``C#``,
    ``.NET``, ``R`` and ``1.2.3`` are words. Traditional Chinese becomes simplified.
    Digits of all scripts are 0 to 9, and letters that Arabic, Persian and Urdu keyboards type
    differently are one. A word that a hyphen breaks at the end of a line is found joined, too.
    Chinese, Japanese, Korean, Thai, Lao, Khmer and Burmese are split into
    pairs of neighbouring characters. Tokens are never empty and contain no white space.

    Texts may be any strings, and take linear time. A document's length, for BM25, is the number of
    its tokens: the sum of its `term_counts`.

    Attributes:
        language: Snowball algorithm that stems the words of its script, or "none". English is
            the default; it also suits code, whose names are English words.
        stop_words: Words removed from a query, except in capitals (IT, WHO) or if no other word is
            left. "english", "none", or your own. Documents keep them, so "to be or not to be" is
            findable, and a change of the list needs no new index.
        cjk: Segmentation of Chinese, Japanese and Korean: "bigrams", pairs of neighbours (better
            in our measurements, no dependency), or "words", Chinese words by a dictionary (extra
            ``zh``).
        split_identifiers: Whether ``getUserName`` also gives "get", "user" and "name".
        version: Version of these rules; a store written with another version is not readable.

    Raises:
        ConfigurationError: A field has an invalid value.

    Examples:
        >>> tokenizer = Tokenizer()
        >>> tokenizer.tokens("Parsing C++ with HTTPServer2")
        ['pars', 'c++', 'with', 'httpserver2', 'http', 'server', '2']
        >>> tokenizer.query_tokens("What is the 火灾?"), tokenizer.query_tokens("What is it?")
        (['火灾'], ['what', 'is', 'it'])

    """

    language: str = "english"
    stop_words: StopWords = "english"
    cjk: Literal["bigrams", "words"] = "bigrams"
    split_identifiers: bool = True
    version: int = TOKENIZER_VERSION

    def __post_init__(self) -> None:
        check_language(self.language)
        _check_stop_words(self.stop_words)
        one_of(self.cjk, _CJK_MODES, "cjk")
        of_type(self.split_identifiers, bool, "split_identifiers", instead="write True or False")
        _check_version(self.version)

    def __getstate__(self) -> dict[str, object]:
        return asdict(self)  # only the fields: a stemmer cannot be pickled

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a document, in the order of its text.

        Returns:
            Tokens, with repetitions. A name gives the whole, then its parts; a run without
            spaces gives its characters, then its pairs or words.

        Examples:
            >>> Tokenizer().tokens("火灾: see user_name")
            ['火', '灾', '火灾', 'see', 'usernam', 'user', 'name']

        """
        return self._analyser.document(text)

    def query_tokens(self, text: str) -> list[str]:
        """Return the tokens of a query; a document with the same words has all of them.

        Returns:
            The same as `tokens`, but without stop words, and only the pairs of a run without
            spaces, or its single character.

        Examples:
            >>> Tokenizer().query_tokens("how to prevent 火灾 in a mine")
            ['prevent', '火灾', 'mine']

        """
        return self._analyser.query(text)[0]

    def query_stop_words(self, text: str) -> list[str]:
        """Return the tokens of a query's stop words, which `query_tokens` leaves out.

        In fields such as titles they tell apart: "The Others", "It".

        Examples:
            >>> Tokenizer().query_stop_words("the fifth wave"), Tokenizer().query_stop_words("it")
            (['the'], [])

        """
        return self._analyser.query(text)[1]

    def term_counts(self, text: str) -> dict[int, int]:
        """Return the count of each term in a document: `tokens` by `term_id`, but faster.

        Returns:
            Unsigned 32-bit term ids and their counts, in no order.

        Examples:
            >>> sorted(Tokenizer().term_counts("R or C or R").values())
            [1, 2, 2]

        """
        return dict(Counter(memoryview(self.term_ids(text)).cast("I")))

    def term_ids(self, text: str) -> bytes:
        """Return the term id of each of a document's `tokens`, to count many documents at once.

        Returns:
            Unsigned 32-bit term ids in the machine's byte order, in no order.

        Examples:
            >>> len(Tokenizer().term_ids("R or C or R"))  # five tokens of four bytes
            20

        """
        return self._analyser.document_ids(text)

    def chunk_ids(self, chunks: Iterable[str]) -> Iterable[bytes]:
        """Return the `term_ids` of each part of a text in NFKC between spaces, from a cache.

        Those of runs without spaces are left out.
        """
        return map(self._analyser.chunks.__getitem__, chunks)

    def word_tokens(self, word: str) -> tuple[str, ...]:
        """Return the `tokens` of one word of a text in NFKC that has spaces, from a cache."""
        return self._analyser.words[word]

    def query_terms(self, text: str) -> dict[int, int]:
        """Return the count of each term in a query: `query_tokens`, counted by `term_id`.

        Returns:
            Unsigned 32-bit term ids and their counts, in no order.
        """
        return dict(Counter(map(term_id, self._analyser.query(text)[0])))

    def to_dict(self) -> dict[str, object]:
        """Return every field as a JSON value."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "Tokenizer":
        """Return the tokenizer that `to_dict` recorded, from exactly all its fields.

        Returns:
            A tokenizer equal to the recorded one.

        Raises:
            ConfigurationError: A field is unknown or missing, the version differs, or a value is
                invalid.

        Examples:
            >>> Tokenizer.from_dict(Tokenizer(language="german").to_dict()).language
            'german'

        """
        _check_version(data.get("version"))
        names = {field.name for field in fields(cls)}
        if names != set(data):
            raise ConfigurationError(
                f"a tokenizer has the fields {sorted(names)}, got {sorted(data)}; "
                "it was recorded by another release of this package, or edited"
            )
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**values)  # type: ignore[arg-type] # checked by __post_init__

    @cached_property
    def _analyser(self) -> Analyser:
        return Analyser(
            language=self.language,
            stop_words=_NAMED_STOP_WORDS[self.stop_words]
            if isinstance(self.stop_words, str)
            else frozenset(without_possessive(normal(word)).casefold() for word in self.stop_words),
            segment=chinese_segmenter() if self.cjk == "words" else None,
            split_identifiers=self.split_identifiers,
        )


def _check_version(version: object) -> None:
    if version != TOKENIZER_VERSION or isinstance(version, bool):
        raise ConfigurationError(
            f"this release reads version {TOKENIZER_VERSION} of the tokenizer, got {version!r}; "
            "index the documents again, or use the release that wrote them (version 3 is that of "
            "Python before 3.14, and 4 that from 3.14 on)"
        )


def _check_stop_words(stop_words: object) -> None:
    if isinstance(stop_words, str) and stop_words in _NAMED_STOP_WORDS:
        return
    if not isinstance(stop_words, tuple):
        raise ConfigurationError(
            f"stop_words must be one of {sorted(_NAMED_STOP_WORDS)} or a tuple of words, "
            f"got {stop_words!r}"
        )
    for word in stop_words:
        if (
            not isinstance(word, str)
            or len(pieces(normal(word))) != 1
            or has_unspaced(normal(word))
        ):
            raise ConfigurationError(
                f"a stop word must be one word of a script with spaces, got {word!r}; Chinese, "
                "Thai and the like are cut into pairs, and BM25 discounts the common ones"
            )
