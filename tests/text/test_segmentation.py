from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.segmentation import document_grams, query_grams, word_grams

RUNS = st.text(alphabet="安全生产法\U00020000", min_size=1)


@given(RUNS)
def test_a_document_has_every_character_and_every_pair(run: str) -> None:
    grams = document_grams(run)
    assert grams[: len(run)] == list(run)
    assert grams[len(run) :] == [run[i : i + 2] for i in range(len(run) - 1)]


@given(RUNS, RUNS, RUNS)
def test_a_document_has_the_grams_of_every_part_of_it(before: str, run: str, after: str) -> None:
    assert set(query_grams(run)) <= set(document_grams(before + run + after))


def test_a_character_that_stands_alone_is_asked_for() -> None:
    assert query_grams("火") == ["火"]


def test_traditional_characters_give_the_terms_of_simplified_ones() -> None:
    assert document_grams("臺灣") == document_grams("台湾")
    assert query_grams("臺灣") == query_grams("台湾")
    assert query_grams("臺") == ["台"]


def test_the_chinese_dictionary_sees_simplified_characters() -> None:
    assert word_grams("臺灣法", segment=lambda run: [run[:2], run[2:]]) == [*"台湾法", "台湾"]


def test_other_scripts_are_not_given_to_the_chinese_dictionary() -> None:
    assert word_grams("タワー", segment=lambda _: ["wrong"]) == document_grams("タワー")
