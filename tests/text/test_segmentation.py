import sys
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import MissingDependencyError
from llama_retrieval_ext.text.gram_ids import packed_grams
from llama_retrieval_ext.text.segmentation import (
    LONGEST_KEY,
    BoundedCache,
    document_grams,
    is_run,
    pieces,
    query_grams,
    runs,
    term_id,
    word_grams,
)
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.cases import cases

RUNS = st.text(alphabet="安全生产法\U00020000", min_size=1)


@given(RUNS)
def test_a_document_has_every_character_and_every_pair(run: str) -> None:
    grams = document_grams(run)
    assert grams[: len(run)] == list(run)
    assert grams[len(run) :] == [run[i : i + 2] for i in range(len(run) - 1)]


@given(RUNS, RUNS, RUNS)
def test_a_document_has_the_grams_of_every_part_of_it(before: str, run: str, after: str) -> None:
    assert set(query_grams(run)) <= set(document_grams(before + run + after))


def test_the_chinese_dictionary_sees_simplified_characters() -> None:
    assert word_grams("臺灣法", segment=lambda run: [run[:2], run[2:]]) == [*"台湾法", "台湾"]


def test_only_chinese_is_segmented_by_the_chinese_dictionary() -> None:
    assert word_grams("タワー", segment=lambda _: ["wrong"]) == document_grams("タワー")


def test_a_key_in_use_outlives_the_others() -> None:
    computed: list[int] = []

    def square(key: int) -> int:
        computed.append(key)
        return key * key

    cache = BoundedCache(square, entries=4)
    for key in range(100):
        assert cache[-1] == 1
        assert cache[key] == key * key
    assert computed.count(-1) == 1


def test_long_texts_are_not_kept() -> None:
    cache = BoundedCache[str, int](len, entries=10)
    assert cache["x" * (LONGEST_KEY + 1)] == LONGEST_KEY + 1
    assert not cache
    assert cache["x" * LONGEST_KEY] == LONGEST_KEY
    assert len(cache) == 1


@cases(
    ("text", "expected"),
    [
        ("a-b c -d- e.", ["a-b", "c", "d", "e"]),
        ("x == y->z[i++]", ["x", "y", "z", "i++"]),
        ("issue#7 C#8 1#", ["issue", "7", "C#", "8", "1"]),
        ("ASP.NET and .Net, .network", ["ASP.NET", "and", ".Net", "network"]),
        ("AT&T o'clock O’Brien", ["AT&T", "o'clock", "O’Brien"]),  # noqa: RUF001
        ("1,000 1,00 1,2,3", ["1,000", "1", "00", "1", "2", "3"]),
        ("a@b.org/c?d=e", ["a", "b.org", "c", "d", "e"]),
        ("東京タワーへ行くGPT模型", ["東京", "タワー", "へ", "行", "く", "GPT", "模型"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("สวัสดี ครับ", ["สวัสดี", "ครับ"]),
    ],
)
def test_text_is_cut_into_runs_and_names(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


def test_a_word_ends_after_128_letters() -> None:
    assert [len(piece) for piece in pieces("a" * 300)] == [128, 128, 44]


def test_a_name_ends_after_eight_words() -> None:
    assert pieces("a.b.c.d.e.f.g.h.i.j") == ["a.b.c.d.e.f.g.h", "i.j"]


def test_a_missing_rjieba_names_the_extra_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    tokenizer = Tokenizer(cjk="words")
    with pytest.raises(MissingDependencyError, match=r"llama-retrieval-ext\[zh\]") as caught:
        tokenizer.tokens("火灾")
    assert caught.value.extra == "zh"


def test_ids_do_not_change_between_releases() -> None:
    # CRC-32's own check value, and what stores have on disk.
    assert term_id("123456789") == 0xCBF43926
    assert term_id("火灾") == 243498011


CJK_CHARACTERS = st.sampled_from(
    [char for char in map(chr, range(0x20010)) if is_run(char) or ord(char) < 0x80]
)


@pytest.mark.slow
@given(
    st.text(
        st.one_of(st.sampled_from("火災法臺タワーへ한국a, \n\0\U0001f525\ud800"), CJK_CHARACTERS)
    )
)
def test_every_gram_has_the_id_of_its_string(text: str) -> None:
    expected = [term_id(gram) for run in runs(text) for gram in document_grams(run)]
    assert sorted(array("I", packed_grams(text))) == sorted(expected)
