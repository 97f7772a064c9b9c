import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.analyzer import fold


@pytest.mark.parametrize(
    ("word", "folded"),
    [
        ("école", "ecole"),
        ("naïve", "naive"),
        ("smørrebrød", "smorrebrod"),
        ("łódź", "lodz"),
        ("þæt", "thaet"),
        ("ılık", "ilik"),  # noqa: RUF001
        ("αθήνα", "αθηνα"),
        ("ёлка", "елка"),
        ("за\u0301мок", "замок"),  # noqa: RUF001
        ("שָׁלוֹם", "שלום"),
        ("مُحَمَّد", "محمد"),
    ],
)
def test_accents_are_folded(word: str, folded: str) -> None:
    assert fold(word) == folded


@pytest.mark.parametrize("word", ["plain", "мой", "їжак", "हिन्दी", "ครั้ง", "火"])
def test_marks_that_make_a_letter_stay(word: str) -> None:
    assert fold(word) == word


@given(st.text().map(str.casefold))
def test_folding_twice_is_folding_once(word: str) -> None:
    assert fold(fold(word)) == fold(word)
