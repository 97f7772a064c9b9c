import pytest

from llama_retrieval_ext.text.correction import replacements
from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.text.vocabulary import Vocabulary

TEXT = (
    "Every employee finds the annual leave in the database. Notebooks, the run_target method, 火灾."
)


def corrected(question: str) -> str:
    words = Vocabulary(Tokenizer())
    words.put("a", TEXT, "")
    for start, end, _, meant in reversed(replacements(question, words, [""])):
        question = question[:start] + meant + question[end:]
    return question


@pytest.mark.parametrize(
    ("question", "searched"),
    [
        ("Emploee leave?", "Employee leave?"),
        ("(emploee), anual!", "(employee), annual!"),
        ("emploee's leave", "employee's leave"),
        ("datebase", "database"),
        ("data base of emploees", "database of employee"),
        ("the note books", "the notebooks"),
        ("annualleave", "annual leave"),
        ("full-emploee", "full-employee"),
    ],
)
def test_typing_errors_are_corrected(question: str, searched: str) -> None:
    assert corrected(question) == searched


@pytest.mark.parametrize(
    "question",
    [
        "employees annual LEAVES databases",  # stems that texts have
        "what whose emplo",
        "\"emploee\" “anual” «anual» `anual` 'anual leave' 「anual」",
        "EMPLOEE emploee2 2emploee anu4l",
        "emploee() os.anual run_targt --anual anual/leave @anual #anual anual=1 anualLeave",
        "塔吊anual怎么用 火宅",
        "zeppelin",
        " ".join(["emploee"] * 33),  # a pasted text
        "",
    ],
)
def test_other_words_stay(question: str) -> None:
    assert corrected(question) == question
