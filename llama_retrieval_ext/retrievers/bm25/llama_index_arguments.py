"""Tokenizer by the arguments of LlamaIndex's own BM25Retriever."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import bm25s.stopwords

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.analyzer import word_stemmer
from llama_retrieval_ext.text.tokenizer import StopWords, Tokenizer

# Names in bm25s of the languages with stop words, and their Snowball names.
_LANGUAGES: Final[Mapping[str, str]] = {
    "da": "danish",
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ru": "russian",
    "sv": "swedish",
    "tr": "turkish",
}
# Tokenised into pairs of characters; BM25 gives common pairs low weights anyway.
_WITHOUT_STOP_WORDS: Final = frozenset({"zh", "chinese", "ko", "korean"})
# Any two stemmers of these languages differ on at least one of these words.
_PROBES: Final = (
    "generously", "skies", "nationalities", "laufenden", "katten", "flickorna", "huset",
    "chantaient", "corriendo", "cantaram", "parlando", "kitaplar", "bakterier", "книгами",
)  # fmt: skip


class Stemmer(Protocol):
    """Interface of PyStemmer's ``Stemmer.Stemmer``."""

    def stemWord(self, word: str) -> str:  # noqa: N802 - PyStemmer's name
        """Return the stem of the word."""
        ...


def tokenizer_for(
    language: str | Sequence[str] | None, *, stemmer: Stemmer | None, skip_stemming: bool
) -> Tokenizer:
    """Return the tokenizer for a language, with or without stemming.

    Examples:
        >>> tokenizer_for("de", stemmer=None, skip_stemming=False).language
        'german'

    """
    stemmed_as = _snowball(language)
    if stemmer is not None and (
        skip_stemming
        or any(stemmer.stemWord(word) != word_stemmer(stemmed_as)(word) for word in _PROBES)
    ):
        raise ConfigurationError(
            f"got a stemmer that is not the one of language={language!r} and "
            f"skip_stemming={skip_stemming}; leave stemmer out and say in language what the text is"
        )
    return Tokenizer(
        language="none" if skip_stemming else stemmed_as, stop_words=_stop_words(language)
    )


def _snowball(language: str | Sequence[str] | None) -> str:
    if not isinstance(language, str) or language in _WITHOUT_STOP_WORDS:
        return "english"
    name = _LANGUAGES.get(language, language)
    if name not in _LANGUAGES.values():
        raise ConfigurationError(
            f"got language={language!r}; expected one of {', '.join(_LANGUAGES)}, zh, ko, their "
            "English names, or a list of stop words. For others make the retriever with "
            "BM25Retriever(nodes, tokenizer=Tokenizer(language=...))"
        )
    return name


def _stop_words(language: str | Sequence[str] | None) -> StopWords:
    if not isinstance(language, str):
        return tuple(language or ()) or "none"
    name = _snowball(language)
    if name == "english":
        return "english"
    words: tuple[str, ...] = getattr(bm25s.stopwords, f"STOPWORDS_{name.upper()}")
    return tuple(words)
