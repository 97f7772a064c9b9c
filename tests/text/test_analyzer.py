import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.analyzer import check_language, spellings, word_stemmer
from llama_retrieval_ext.text.normalization import fold
from tests.cases import cases


@cases(
    ("word", "folded"),
    [
        ("école", "ecole"),
        ("smørrebrød", "smorrebrod"),
        ("þæt", "thaet"),
        ("ılık", "ilik"),  # noqa: RUF001
        ("αθήνα", "αθηνα"),
        ("за\u0301мок", "замок"),  # noqa: RUF001
        ("שָׁלוֹם", "שלום"),
        ("مُحَمَّد", "محمد"),
    ],
)
def test_accents_are_folded(word: str, folded: str) -> None:
    assert fold(word) == folded


@cases("word", ["plain", "мой", "їжак", "हिन्दी", "ครั้ง", "火"])
def test_marks_that_make_a_letter_stay(word: str) -> None:
    assert fold(word) == word


WORDS = st.lists(st.text("abcdefgh", min_size=2, max_size=6), min_size=1, max_size=6)


@given(WORDS)
def test_every_way_to_write_a_name_gives_the_same_spellings(words: list[str]) -> None:
    snake = spellings("_".join(words))
    assert snake == spellings("-".join(words))
    assert snake == spellings(".".join(words))
    assert snake == spellings("".join(word.title() for word in words))
    assert snake == spellings(words[0] + "".join(word.title() for word in words[1:]))


def test_a_run_of_capitals_ends_before_the_next_word() -> None:
    assert spellings("HTTPServer2") == ["httpserver2", "http", "server", "2"]
    assert spellings("XMLHttpRequest") == ["xmlhttprequest", "xml", "http", "request"]
    assert spellings("APIs") == ["apis"]
    assert spellings("userIDs") == ["userids", "user", "ids"]


def test_capitals_of_other_alphabets_divide_names() -> None:
    assert spellings("ЗаказКлиента") == ["заказклиента", "заказ", "клиента"]


def test_a_number_is_found_by_its_beginnings() -> None:
    assert spellings("1.2.3") == ["1.2.3", "1.2", "1"]
    assert spellings("3.14") == ["3.14", "3"]
    assert spellings("v1.2.3") == ["v1.2.3", "v", "1.2.3", "1.2", "1"]


def test_thousands_lose_their_commas() -> None:
    assert spellings("1,000,000") == ["1000000", "1", "000", "000"]


def test_dates_and_versions_keep_what_stands_between_digits() -> None:
    assert spellings("2024-01-15")[0] == "2024-01-15"
    assert spellings("x86_64")[0] == "x86_64"


def test_a_single_letter_needs_its_sign() -> None:
    assert spellings("C++") == ["c++"]
    assert spellings("C#") == ["c#"]
    assert spellings("notepad++") == ["notepad++", "notepad"]
    assert spellings("Objective-C++") == ["c++", "objectivec", "objective", "c"]


def test_net_is_found_with_and_without_its_point() -> None:
    assert spellings(".NET") == [".net", "net"]
    assert spellings("ASP.NET") == ["aspnet", "asp", "net"]


def test_dunder_names_lose_their_underscores() -> None:
    assert spellings("__init__") == ["init"]
    assert spellings("___") == []


def test_a_name_with_too_many_parts_is_cut_between_parts() -> None:
    assert spellings("f47ac10b-58cc-4372-a567-0e02b2c3d479") == [
        "f47ac10b58cc4372a567-0e02b2c3d479",
        "f47ac10b",
        "58cc",
        "4372",
        "a567",
        "0e02b2c3d479",
    ]


@cases(
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


@cases("word", ["utf8s", "c++", "книги", "at&ts", "1.2.3"])
def test_words_of_other_languages_are_not_stemmed(word: str) -> None:
    assert word_stemmer("english")(word) == word


def test_every_algorithm_can_be_chosen() -> None:
    for language in Stemmer.algorithms():
        check_language(language)
        assert word_stemmer(language)("internationalisation")


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'elvish'"):
        check_language("elvish")
