import random
import string

import pytest

from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.text.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("emplyee", "employee"),  # an omitted letter
        ("employeee", "employee"),
        ("emploxee", "employee"),
        ("empolyee", "employee"),  # swapped letters
        ("epmloyes", "employee"),  # two edits from eight letters on
        ("mployee", "employee"),  # the first letter
        ("xmployee", "employee"),
        ("meployee", "employee"),
        ("qemployee", "employee"),
        ("leavx", "leave"),
        ("lexvx", None),  # two edits of five letters
        ("lev", None),  # too short
        ("carsy", "carsz"),  # the same first letter before frequency
        ("école", "ecole"),
        ("ressume", "résumé"),
        ("zeppelin", None),
    ],
)
def test_the_nearest_word_is_found(typed: str, nearest: str | None) -> None:
    words = Vocabulary(Tokenizer())
    words.put("a", "An employee on leave, ecole, résumé, carsz", "x")
    words.put("b", "barsy, more", "x")
    words.put("c", "barsy", "x")
    assert words.nearest(typed, ["x"]) == nearest


def test_one_edit_is_always_found_at_the_right_distance() -> None:
    draw = random.Random(5)
    words = Vocabulary(Tokenizer(language="none"))
    known = [
        "".join(draw.choices(string.ascii_lowercase, k=draw.randint(6, 14))) for _ in range(3000)
    ]
    words.put("all", " ".join(known), "x")
    for word in draw.sample(known, 400):
        at, letter = draw.randrange(len(word)), draw.choice(string.ascii_lowercase)
        swapped = f"{word[:at]}{word[at + 1 : at + 2]}{word[at]}{word[at + 2 :]}"
        edits = [word[:at] + word[at + 1 :], word[:at] + letter + word[at:], swapped]
        typed = draw.choice([*edits, word[:at] + letter + word[at + 1 :]])
        assert words.nearest(typed, ["x"]) == word


def test_words_are_counted_by_group_and_forgotten_with_their_texts() -> None:
    words = Vocabulary(Tokenizer())
    words.put("a", "secret budget", "hr")
    words.put("b", "budget of getUserName", "all")
    assert words.nearest("secrte", ["all"]) is None
    assert words.nearest("secrte", ["all", "hr"]) == "secret"
    assert (words.frequency("budgets", ["all", "hr"]), words.frequency("user", ["all"])) == (2, 1)
    words.put("a", "public now", "all")
    assert words.nearest("secrte", ["all", "hr"]) is None
    words.remove("b")
    words.remove("b")
    assert words.frequency("budget", ["all", "hr"]) == 0
