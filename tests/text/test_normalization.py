import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.normalization import aligned, dominant_script, normal, simplified
from llama_retrieval_ext.text.segmentation import pieces


def test_the_dominant_script_of_a_text_is_named(subtests: pytest.Subtests) -> None:
    for text, script in [
        ("What is retrieval?", "latin"),
        ("请用 Python 和 sentence_transformers 写一个检索函数", "han"),
        ("what does 火 mean in Chinese?", "latin"),
        ("火事が起きたらどうする", "kana"),
        ("ﾃﾞｰﾀﾍﾞｰｽ", "kana"),
        ("优衣库の官方旗舰店", "han"),
        ("화재가 나면", "hangul"),
        ("Что делать при пожаре?", "cyrillic"),
        ("מה זה", "hebrew"),
        ("आग क्या है", "devanagari"),
        ("ຫ້ອງສະໝຸດ", "lao"),
        ("ព្រឹក", "khmer"),
        ("မြန်မာ", "burmese"),
        ("", "none"),
        ("42 + 1 = ?", "none"),
        ("🔥\ud800\0", "none"),
    ]:
        with subtests.test(text=text):
            assert dominant_script(text) == script


UNSETTLED = "\u2103"  # one such character sends the whole text through NFKC


@given(st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E)))
def test_full_width_is_read_as_half_width(text: str) -> None:
    text = text.replace(",", "")  # see the next test but one
    wide = "".join(chr(ord(char) + 0xFEE0) for char in text)
    assert pieces(normal(wide)) == pieces(text)


@pytest.mark.slow
def test_every_character_is_read_the_same_with_and_without_nfkc() -> None:
    for code in [*range(0x20, 0x3500), *range(0x9FF0, 0xAC10), *range(0xD790, 0x11000)]:
        text = f"a{chr(code)}1{chr(code)}100b"
        assert pieces(normal(text)) == pieces(normal(f"{text} {UNSETTLED}"))[:-1], hex(code)


def test_a_full_width_comma_ends_a_word() -> None:
    assert pieces(normal("20，300")) == pieces(normal("20，300℃"))[:-1] == ["20", "300"]  # noqa: RUF001


@given(st.text())
def test_normal_text_is_nfkc_up_to_full_width_commas(text: str) -> None:
    twice = unicodedata.normalize("NFKC", normal(text))
    assert pieces(twice.replace(",", " ")) == pieces(normal(text).replace(",", " "))


def test_invisible_characters_do_not_part_a_word() -> None:
    assert normal("co\u00adop\u200derate\ufeff") == "cooperate"
    assert normal("葛\ufe00\U000e0100飾") == "葛飾"


@given(st.text(st.sampled_from("aé\u0301ﬁ㎏\u200b\u200e한\u1112\u1161\u11abﾊﾟกำ٢ى火，\u0640")))  # noqa: RUF001
def test_an_aligned_text_is_normal_with_the_position_of_each_character(text: str) -> None:
    plain, offsets = aligned(text)
    assert plain.replace("，", "、") == normal(text).replace("，", "、")  # noqa: RUF001 - both end a word
    assert len(offsets) == len(plain)
    assert list(offsets) == sorted(offsets)
    for character, at in zip(plain, offsets, strict=True):
        if character in "a火2":
            assert normal(text[at]) == character


def test_decomposed_letters_are_composed() -> None:
    assert normal("e\u0301") == "é"
    assert normal("\u1112\u1161\u11ab") == "한"
    assert normal("ﾊﾟﾘ") == "パリ"


def test_words_of_either_spelling_become_the_same(subtests: pytest.Subtests) -> None:
    for one, other in [("資訊安全", "资讯安全"), ("裏面", "裡面"), ("台灣", "臺灣"), ("為", "爲")]:
        with subtests.test(one=one):
            assert simplified(one) == simplified(other)


@given(st.text(st.characters(min_codepoint=0x3400, max_codepoint=0x9FFF)))
def test_simplifying_is_idempotent_and_keeps_the_length(text: str) -> None:
    once = simplified(text)
    assert simplified(once) == once
    assert len(once) == len(text)
