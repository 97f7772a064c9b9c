from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.segmentation import is_run
from llama_retrieval_ext.text.traditional_chinese import simplified

HAN_TEXTS = st.text(st.characters(min_codepoint=0x3400, max_codepoint=0x9FFF))


def test_words_of_either_spelling_become_the_same() -> None:
    pairs = [
        ("資訊安全", "资讯安全"),
        ("裏面", "里面"),
        ("裡面", "里面"),
        ("台灣", "臺灣"),
        ("為", "爲"),
    ]
    assert [simplified(one) for one, _ in pairs] == [simplified(other) for _, other in pairs]


@given(HAN_TEXTS)
def test_simplifying_is_idempotent_and_keeps_the_length(text: str) -> None:
    once = simplified(text)
    assert simplified(once) == once
    assert len(once) == len(text)


def test_every_han_character_is_simplified_to_a_han_character() -> None:
    every = "".join(map(chr, range(0x4E00, 0xA000)))
    assert is_run(simplified(every))


def test_simplifying_leaves_other_scripts_unchanged() -> None:
    assert simplified("タワー へ 한국어 café 12") == "タワー へ 한국어 café 12"
