import random
import string

import pytest

from llama_retrieval_ext.text.correction import Vocabulary, replacements
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.cases import cases

TEXT = (
    "Every employee finds the annual leave in the database. Notebooks, the run_target method, 火灾."
    " It sets a FrameTimer with getTimer."
)


def corrected(question: str) -> str:
    words = Vocabulary(Tokenizer())
    words.put("a", TEXT, "")
    for start, end, _, meant in reversed(replacements(question, words, [""])):
        question = question[:start] + meant + question[end:]
    return question


@cases(
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
        ("FrmaeTimer's frameTmier", "FrameTimer's FrameTimer"),
        ("frametimmer", "FrameTimer"),
    ],
)
def test_typing_errors_are_corrected(question: str, searched: str) -> None:
    assert corrected(question) == searched


@cases(
    "question",
    [
        "employees annual LEAVES databases",  # stems that texts have
        "what whose emplo",
        "\"emploee\" “anual” «anual» `anual` 'anual leave' 「anual」",
        "EMPLOEE emploee2 2emploee anu4l",
        "emploee() os.anual run_targt --anual anual/leave @anual #anual anual=1 anualLeave",
        "setTimer FrameMethod `FramTimer` FramTimer() FRAMTimer2",  # names of known words, and code
        "塔吊anual怎么用 火宅",
        "zeppelin",
        " ".join(["emploee"] * 33),  # a pasted text
        "",
    ],
)
def test_other_words_stay(question: str) -> None:
    assert corrected(question) == question


@cases(
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
        ("acyclic", None),  # another word, not "cyclic"
        ("hypotension", None),
        ("cyclc", "cyclic"),
    ],
)
def test_the_nearest_word_is_found(typed: str, nearest: str | None) -> None:
    words = Vocabulary(Tokenizer())
    words.put("a", "An employee on leave, ecole, résumé, carsz, cyclic hypertension", "x")
    words.put("b", "barsy, more", "x")
    words.put("c", "barsy", "x")
    assert words.nearest(typed, ["x"]) == nearest


@pytest.mark.slow
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


def test_a_word_is_spelt_as_texts_of_its_own_group_do() -> None:
    words = Vocabulary(Tokenizer())
    words.put("1", "Résumé of a sénateur, colours, getParams", "zen")
    words.put("2", "resume of the senateur, colour, getparams", "acme")
    for typed, zen, acme in [
        ("resumme", "résumé", "resume"),
        ("senateurr", "sénateur", "senateur"),
        ("coloursz", "colours", "colour"),
        ("getParms", "getParams", None),
    ]:
        assert (words.nearest(typed, ["zen"]), words.nearest(typed, ["acme"])) == (zen, acme)
    words.remove("1")
    assert words.nearest("resumme", ["zen"]) is None
