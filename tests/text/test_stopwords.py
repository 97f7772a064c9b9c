from llama_retrieval_ext.text.tokenizer import ENGLISH_STOP_WORDS
from tests.cases import each_case


def test_stop_words_are_casefolded_letters() -> None:
    assert all(word.isascii() and word.isalpha() and word.islower() for word in ENGLISH_STOP_WORDS)


@each_case("word", ["if", "while", "may", "will", "fire"])
def test_words_that_questions_are_about_are_none(word: str) -> None:
    assert word not in ENGLISH_STOP_WORDS
