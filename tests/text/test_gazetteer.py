"""Known names are found in texts as they are written, or nearly so."""

import random

import pytest

from llama_retrieval_ext.text.gazetteer import Gazetteer, Mention
from tests.cases import cases

NAMES = Gazetteer(
    [
        ("deep foundation pit", "pit"),
        ("pit", "hole"),
        ("Café Zürich", "cafe"),
        ("塔式起重機", "crane"),
        ("起重", "lift"),
        ("art", "art"),
        ("IBM", "ibm"),
        ("IBM", "ibm-de"),
    ]
)


def found(text: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(text[m.start : m.end], m.ids) for m in NAMES.find(text)]


@cases(
    ("text", "expected"),
    [
        ("The Deep Foundation Pit, dug", [("Deep Foundation Pit", ("pit",))]),
        ("party, pits and artful pitfalls", []),
        ("检查塔式起重机吊装", [("塔式起重机", ("crane",))]),
        ("用ＩＢＭ的", [("ＩＢＭ", ("ibm", "ibm-de"))]),  # noqa: RUF001
        ("cafe\u0301 zu\u0308rich!", [("cafe\u0301 zu\u0308rich", ("cafe",))]),
        ("", []),
    ],
)
def test_names_are_found_in_any_spelling_at_word_boundaries(
    text: str, expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    assert found(text) == expected


@cases(
    ("name", "text", "spelling"),
    [
        ("IT", "what is it about", None),
        ("IT", "what does IT do", "IT"),
        ("IT", "用ＩＴ的部门", "ＩＴ"),  # noqa: RUF001
        ("WHO", "who said it? Who?", None),
        ("WHO", "said the WHO.", "WHO"),
        ("NATO", "a nato of words", None),
        ("США", "правила сша", None),
        ("R", "pillar r", None),
        ("R&D", "how much r&d", "r&d"),
        ("ANNUAL LEAVE", "annual leave rules", "annual leave"),
        ("It", "what is it about", "it"),
        ("Zürich", "a train to zurich", "zurich"),
        ("zurich", "nach Zürich", "Zürich"),
        ("Škoda", "a SKODA", "SKODA"),
        ("Đà Nẵng", "in da nang", "da nang"),
        ("Ångström", "an A\u030angstro\u0308m unit", "A\u030angstro\u0308m"),
        ("smørrebrød", "smorrebrod please", "smorrebrod"),
        ("Ærø", "to aero", "aero"),
        ("中" * 201, "中" * 300, None),
        ("中" * 200, "中" * 200, "中" * 200),
    ],
)
def test_acronyms_need_capitals_accents_fold_and_names_are_bounded(
    name: str, text: str, spelling: str | None
) -> None:
    gazetteer = Gazetteer([(name, "id")])
    mentions = [text[m.start : m.end] for m in gazetteer.find(text)]
    assert mentions == ([] if spelling is None else [spelling])
    assert gazetteer.find_similar(text) == gazetteer.find(text)


def test_a_name_that_is_a_word_and_an_acronym_has_both_ids_in_capitals() -> None:
    gazetteer = Gazetteer([("Who", "band"), ("WHO", "health"), ("who is who", "book")])
    text = "who knows the WHO? Who is WHO"
    assert [m.ids for m in gazetteer.find(text)] == [("band",), ("band", "health"), ("book",)]


def similar(text: str) -> list[Mention]:
    return NAMES.find_similar(text)


def test_a_longer_name_with_a_typo_beats_a_shorter_exact_one() -> None:
    (mention,) = similar("is a deep foundaton pit safe?")
    assert mention.ids == ("pit",)
    assert 0.85 <= mention.score < 1


def test_an_exact_name_beats_a_similar_one_in_the_same_words() -> None:
    gazetteer = Gazetteer([("cranes", "many"), ("crane", "one")])
    assert [m.ids for m in gazetteer.find_similar("the crane")] == [("one",)]


def test_a_chinese_name_with_a_typo_is_found() -> None:
    gazetteer = Gazetteer([("塔式起重机安装", "crane")])
    (mention,) = gazetteer.find_similar("检查塔式起重械安装的安全")
    assert (mention.start, mention.end, mention.ids) == (2, 9, ("crane",))


@cases(
    ("text", "ids"),
    [
        ("2号塔式起重机检查", []),
        ("一号塔式起重机检查", [("crane",)]),
        ("二级消防工程师", []),
        ("十号塔式起重机检查", []),
        ("浇筑C35混凝土试块", []),
        ("浇筑C30混凝士试块", [("cube",)]),
        ("第十一号楼大型塔式起重机设备", [("eleven",)]),
        ("第十号楼大型塔式起重机设备", []),
        ("第23号楼大型塔式起重机设备", []),
        ("see article 13", []),
        ("see artixle 12", [("article",)]),
        ("01号塔式起重机检查", [("crane",)]),
        ("see article 012", [("article",)]),
        ("article 0012 is new", [("article",)]),
        ("see article 120", []),
        ("see section 4.05", []),
    ],
)
def test_a_name_with_another_number_is_another_name(text: str, ids: list[tuple[str]]) -> None:
    gazetteer = Gazetteer(
        [
            ("1号塔式起重机", "crane"),
            ("第11号楼大型塔式起重机设备", "eleven"),
            ("二十号塔式起重机", "other crane"),
            ("一级消防工程师", "engineer"),
            ("C30混凝土试块", "cube"),
            ("article 12", "article"),
            ("section 4.5", "section"),
        ]
    )
    assert [mention.ids for mention in gazetteer.find_similar(text)] == ids


def test_unlike_texts_resemble_nothing() -> None:
    assert similar("annual leave and parental benefits") == []


def test_an_empty_gazetteer_finds_nothing() -> None:
    assert Gazetteer([]).find_similar("pit") == []


@pytest.mark.slow
def test_mentions_lie_in_any_text_without_overlapping() -> None:
    rng = random.Random(1)
    alphabet = "deep foundation pit塔式起重機ßﬁ\u0301\u200b\ud800 İ"
    for _ in range(300):
        text = "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 40)))
        at = 0
        for mention in NAMES.find_similar(text, threshold=0.7):
            assert at <= mention.start < mention.end <= len(text)
            at = mention.end
