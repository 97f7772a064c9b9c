from concurrent.futures import ThreadPoolExecutor

import pytest
import Stemmer

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.analyzer import check_language, word_stemmer


@pytest.mark.parametrize(
    ("language", "words", "stem"),
    [
        ("english", ["résumé", "resumes", "résumés"], "resum"),
        ("german", ["häuser", "hauser"], "haus"),
        ("russian", ["книга", "книги", "книгу"], "книг"),
        ("french", ["chanté", "chanter"], "chant"),
        ("none", ["École".casefold()], "ecole"),
    ],
)
def test_forms_of_a_word_meet(language: str, words: list[str], stem: str) -> None:
    assert set(map(word_stemmer(language), words)) == {stem}


@pytest.mark.parametrize("word", ["utf8s", "c++", "книги", "at&ts", "1.2.3"])
def test_what_is_no_word_of_the_language_keeps_its_ending(word: str) -> None:
    assert word_stemmer("english")(word) == word


def test_every_algorithm_can_be_chosen() -> None:
    for language in Stemmer.algorithms():
        check_language(language)
        assert word_stemmer(language)("internationalisation")


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'elvish'"):
        check_language("elvish")


def test_threads_share_a_stemmer() -> None:
    stem = word_stemmer("english")
    words = [f"{letters}ings" for letters in ("pars", "walk", "read", "index")] * 500
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(stem, words)) == [word_stemmer("english")(word) for word in words]
