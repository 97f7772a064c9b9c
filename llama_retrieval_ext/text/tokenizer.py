"""The tokenizer of keyword search, as a value that a store can keep beside its index."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Final, Literal, TypeAlias

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.analyzer import Analyser, check_language
from llama_retrieval_ext.text.identifiers import without_possessive
from llama_retrieval_ext.text.normalization import normal
from llama_retrieval_ext.text.segmentation import chinese_segmenter, has_cjk, pieces

# The closed word classes that queries are full of. Question words matter most: they are rare in
# documents, so BM25 would give them a high weight. Negations are in: a bag of
# words cannot say what is not. Left out are "if" and "while", which questions about code are about,
# and words that are also names or nouns ("may", "will", "might", "must").
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

TOKENIZER_VERSION: Final = 2
_NAMED_STOP_WORDS: Final = {"english": ENGLISH_STOP_WORDS, "none": frozenset[str]()}
_CJK_MODES: Final = ("bigrams", "words")


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """How text becomes terms, the same for documents and queries, wherever they are indexed.

    A value: its fields are all there is to it, equal tokenizers give equal tokens, and
    ``Tokenizer.from_dict(tokenizer.to_dict())`` is the same one. It may be shared by threads,
    pickled and copied; its caches (some 50 MB when full) are made at first
    use and stay behind.

    Text is brought to NFKC and casefolded; accents are folded, so "ecole" finds "école". Words of
    one language are stemmed, names are found whole and by their parts, and ``C++``, ``C#``,
    ``.NET``, ``R`` and ``1.2.3`` are words. Traditional Chinese characters are simplified ones.
    Tokens are never empty and hold no white space. Thai, Lao, Khmer and Burmese are cut at spaces
    only.

    A document's length, for BM25, is the number of its tokens: the sum of its `term_counts`.

    Attributes:
        language: Snowball algorithm that stems the words of its script, or "none". English by
            default: it also does code good, whose names are English words.
        stop_words: Words a query drops, unless it has no other or they stand in capitals (IT, WHO).
            "english", "none", or your own. Documents keep them, so "to be or not to be" is
            findable, and another list needs no new index.
        cjk: How Chinese, Japanese and Korean are cut: "bigrams", pairs of neighbours (the better
            one in our measurements, needs nothing), or "words", Chinese words by a dictionary
            (extra ``zh``).
        split_identifiers: Whether ``getUserName`` is also "get", "user" and "name".
        version: Of the rules above; a store written by other rules is not readable by these.

    Raises:
        ConfigurationError: A field has a value that cannot work.

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
        if self.cjk not in _CJK_MODES:
            raise ConfigurationError(f"cjk must be one of {_CJK_MODES}, got {self.cjk!r}")
        if not isinstance(self.split_identifiers, bool):
            raise ConfigurationError(
                f"split_identifiers must be True or False, got {self.split_identifiers!r}"
            )
        _check_version(self.version)

    def __getstate__(self) -> dict[str, object]:
        return asdict(self)  # the fields only: a stemmer cannot be pickled

    def tokens(self, text: str) -> list[str]:
        """The tokens of a document, in the order of its text.

        Args:
            text: Any string. Linear time.

        Returns:
            Tokens as often as they occur. A name gives the whole, then its parts; a CJK run its
            characters, then its pairs or words.

        Examples:
            >>> Tokenizer().tokens("火灾: see user_name")
            ['火', '灾', '火灾', 'see', 'usernam', 'user', 'name']

        """
        return self._analyser.document(text)

    def query_tokens(self, text: str) -> list[str]:
        """The tokens to look for, all of which a document with the same words has.

        Args:
            text: Any string. Linear time.

        Returns:
            As `tokens`, without stop words, and of a CJK run only the pairs, or the one character
            it has.

        Examples:
            >>> Tokenizer().query_tokens("how to prevent 火灾 in a mine")
            ['prevent', '火灾', 'mine']

        """
        return self._analyser.query(text)

    def term_counts(self, text: str) -> dict[int, int]:
        """How often each term is in a document: `tokens`, counted by `term_id`, only faster.

        Args:
            text: Any string. Linear time.

        Returns:
            Unsigned 32-bit term ids and their counts, in no order.

        Examples:
            >>> sorted(Tokenizer().term_counts("R or C or R").values())
            [1, 2, 2]

        """
        return self._analyser.document_counts(text)

    def term_ids(self, text: str) -> bytes:
        """Return the term id of each of a document's `tokens`, to count many documents at once.

        Args:
            text: Any string. Linear time.

        Returns:
            Unsigned 32-bit term ids in the machine's byte order, in no order.

        Examples:
            >>> len(Tokenizer().term_ids("R or C or R"))  # five tokens of four bytes
            20

        """
        return self._analyser.document_ids(text)

    def query_terms(self, text: str) -> dict[int, int]:
        """How often each term is in a query: `query_tokens`, counted by `term_id`.

        Args:
            text: Any string. Linear time.

        Returns:
            Unsigned 32-bit term ids and their counts, in no order.

        """
        return self._analyser.query_counts(text)

    def to_dict(self) -> dict[str, object]:
        """Every field, as JSON has it."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "Tokenizer":
        """The tokenizer that `to_dict` recorded.

        Args:
            data: All fields and no others.

        Returns:
            A tokenizer equal to the recorded one.

        Raises:
            ConfigurationError: A field is unknown or missing, the version is another, or a value
                cannot work.

        Examples:
            >>> Tokenizer.from_dict(Tokenizer(language="german").to_dict()).language
            'german'

        """
        _check_version(data.get("version"))
        known = {field.name for field in fields(cls)}
        if known != set(data):
            raise ConfigurationError(
                f"a tokenizer has the fields {sorted(known)}, got {sorted(data)}; "
                "it was recorded by another release of this package, or edited"
            )
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**values)  # type: ignore[arg-type] # checked by __post_init__

    @cached_property
    def _analyser(self) -> Analyser:
        return Analyser(
            language=self.language,
            stop_words=_stop_words(self.stop_words),
            segment=chinese_segmenter() if self.cjk == "words" else None,
            split_identifiers=self.split_identifiers,
        )


def _check_version(version: object) -> None:
    if version != TOKENIZER_VERSION or isinstance(version, bool):
        raise ConfigurationError(
            f"this release reads version {TOKENIZER_VERSION} of the tokenizer, got {version!r}; "
            "index the documents again, or use the release that wrote them"
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
        if not isinstance(word, str) or len(pieces(normal(word))) != 1 or has_cjk(normal(word)):
            raise ConfigurationError(
                f"a stop word must be one word, not Chinese, Japanese or Korean, got {word!r}; "
                "those are cut into pairs of characters, and BM25 discounts the common ones"
            )


def _stop_words(stop_words: StopWords) -> frozenset[str]:
    if isinstance(stop_words, str):
        return _NAMED_STOP_WORDS[stop_words]
    return frozenset(without_possessive(normal(word)).casefold() for word in stop_words)
