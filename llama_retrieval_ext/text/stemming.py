"""Words without their endings, by Snowball; the only place that imports PyStemmer."""

import re
from collections.abc import Callable
from threading import Lock
from typing import Final

import Stemmer

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.folding import fold
from llama_retrieval_ext.text.scripts import RANGES, Script

NO_STEMMING: Final = "none"
# These algorithms know only a to z: résumés must lose its accents to lose its plural. The others
# read accents (French chanté, chante), which may go only after the ending.
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
    """Refuse a language that Snowball has no algorithm for.

    Args:
        language: Name of a Snowball algorithm, or "none".

    Raises:
        ConfigurationError: There is no such algorithm.

    """
    known = [NO_STEMMING, *Stemmer.algorithms()]
    if language not in known:
        raise ConfigurationError(
            f"language must be a Snowball algorithm or {NO_STEMMING!r}, got {language!r}; "
            f"the algorithms are {', '.join(known[1:])}"
        )


def word_stemmer(language: str) -> Callable[[str], str]:
    """A function from a casefolded word to its folded stem; threads may share it.

    Only words written in nothing but the language's script are stemmed: not ``utf8``, not another
    script's. Every word is folded.

    Args:
        language: Name of a Snowball algorithm, or "none" to fold only.

    Returns:
        A function of one word; it never gives the empty string for a word with a letter.

    Examples:
        >>> [word_stemmer("english")(word) for word in ("running", "résumés", "utf8s")]
        ['run', 'resum', 'utf8s']

    """
    if language == NO_STEMMING:
        return fold
    ranges = "".join(RANGES[script] for script in _SCRIPTS.get(language, ("latin",)))
    stemmable = re.compile(f"[{ranges}]+").fullmatch
    snowball = Stemmer.Stemmer(language, 0)  # no cache of its own: ours keeps the result
    lock = Lock()  # a Snowball stemmer holds the word it works on

    def stem(word: str) -> str:
        if not stemmable(word):
            return word
        with lock:
            ending_off: str = snowball.stemWord(word)
        return ending_off or word

    if language in _PLAIN_LETTERS:
        return lambda word: stem(fold(word))
    return lambda word: fold(stem(word))
