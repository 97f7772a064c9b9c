"""Translation of the arguments of LlamaIndex's own BM25Retriever."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypedDict

import bm25s.stopwords
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.schema import IndexNode

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ArgumentError, ConfigurationError
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


# LlamaIndex's default. Our tokenizer is not a pattern and finds a superset.
TOKEN_PATTERN: Final = r"(?u)\b\w\w+\b"  # noqa: S105 - no password
DEFAULT_TOP_K: Final = 10
_OF_THE_TOKENIZER: Final = ("language", "stemmer", "skip_stemming")
_OTHERS: Final = (
    "similarity_top_k", "token_pattern", "verbose", "callback_manager", "objects", "object_map",
    "existing_bm25", "corpus_weight_mask",
)  # fmt: skip
_REFUSED: Final[Mapping[str, str]] = {
    "existing_bm25": "pass the nodes, or load what persist() wrote with BM25Retriever.load(path)",
    "corpus_weight_mask": "pass filters=, or only the nodes that may be found",
}
_EITHER: Final = "give either tokenizer or {}: Tokenizer(language=...) says both"
_log = logging.getLogger(__name__)


class Stemmer(Protocol):
    """Interface of PyStemmer's ``Stemmer.Stemmer``."""

    def stemWord(self, word: str) -> str:  # noqa: N802 - PyStemmer's name
        """Return the stem of the word."""
        ...


class LlamaIndexOptions(TypedDict, total=False):
    """Arguments of LlamaIndex's ``BM25Retriever``, under its names.

    ``similarity_top_k`` is ``top_k``; ``language``, ``stemmer`` and ``skip_stemming`` choose the
    tokenizer; ``verbose`` shows a progress bar while nodes are indexed; ``objects`` and
    ``object_map`` resolve index nodes. ``token_pattern`` must be LlamaIndex's default;
    ``existing_bm25`` and ``corpus_weight_mask`` must be None.
    """

    similarity_top_k: int
    stemmer: Stemmer | None
    language: str | Sequence[str] | None
    skip_stemming: bool
    token_pattern: str
    verbose: bool
    callback_manager: CallbackManager | None
    objects: Sequence[IndexNode] | None
    object_map: Mapping[str, object] | None
    existing_bm25: None
    corpus_weight_mask: None


def check_names(options: Mapping[str, object]) -> None:
    """Raise for arguments that are unknown here and in LlamaIndex, or are not supported."""
    unknown = sorted(options.keys() - {*_OF_THE_TOKENIZER, *_OTHERS})
    if unknown:
        raise ArgumentError(
            f"BM25Retriever has no argument {', '.join(unknown)}; the number of hits is top_k, "
            "the way text is cut is tokenizer, metadata conditions are filters"
        )
    for name, instead in _REFUSED.items():
        if options.get(name) is not None:
            raise ConfigurationError(f"{name} cannot be honoured; leave it out, and {instead}")
    pattern = options.get("token_pattern", TOKEN_PATTERN)
    if pattern not in (None, TOKEN_PATTERN):
        raise ConfigurationError(
            f"got token_pattern={pattern!r}, which cannot be honoured: leave it out, or choose "
            "with BM25Retriever(nodes, tokenizer=Tokenizer(...)) how text is cut"
        )


def tokenizer_from(options: LlamaIndexOptions, tokenizer: Tokenizer | None) -> Tokenizer:
    """Return the tokenizer for these arguments."""
    named = [name for name in _OF_THE_TOKENIZER if name in options]
    if tokenizer is None and named:
        return tokenizer_for(
            options.get("language", "en"),
            stemmer=options.get("stemmer"),
            skip_stemming=options.get("skip_stemming", False),
        )
    if named:
        raise ConfigurationError(_EITHER.format(", ".join(named)))
    return Tokenizer() if tokenizer is None else of_type(tokenizer, Tokenizer, "tokenizer")


def top_k_from(options: LlamaIndexOptions, top_k: int) -> int:
    """Return the number of hits, given under either name."""
    named = options.get("similarity_top_k", top_k)
    if top_k not in (named, DEFAULT_TOP_K):
        raise ConfigurationError(
            f"got top_k={top_k} and similarity_top_k={named}, which mean the same; leave one out"
        )
    return named


def tokenizer_by_default(
    tokenizer: Tokenizer | Callable[[str], list[str]] | None,
    language: str | Sequence[str] | None,
    *,
    stemmer: Stemmer | None,
    skip_stemming: bool,
) -> Tokenizer:
    """Return the tokenizer if it is ours, else one for the other arguments.

    LlamaIndex's deprecated tokenizer function is ignored with a warning.
    """
    if tokenizer is None or (callable(tokenizer) and not isinstance(tokenizer, Tokenizer)):
        if tokenizer is not None:
            _log.warning(
                "tokenizer=%r is not used, as in LlamaIndex, which has deprecated it; "
                "pass tokenizer=Tokenizer(...) to choose how text is cut",
                tokenizer,
            )
        return tokenizer_for(language, stemmer=stemmer, skip_stemming=skip_stemming)
    if language != "en" or stemmer is not None or skip_stemming:
        raise ConfigurationError(_EITHER.format("language, stemmer and skip_stemming"))
    return of_type(tokenizer, Tokenizer, "tokenizer")


def tokenizer_for(
    language: str | Sequence[str] | None, *, stemmer: Stemmer | None, skip_stemming: bool
) -> Tokenizer:
    """Return the tokenizer for a language, with or without stemming.

    Examples:
        >>> tokenizer_for("de", stemmer=None, skip_stemming=False).language
        'german'

    """
    stemmed_as = _snowball(language)
    if stemmer is not None and (skip_stemming or not _is_stemmer_of(stemmed_as, stemmer)):
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


def _is_stemmer_of(language: str, stemmer: Stemmer) -> bool:
    stem = word_stemmer(language)
    return all(stemmer.stemWord(word) == stem(word) for word in _PROBES)
