import sys

import pytest

from llama_retrieval_ext.errors import MissingDependencyError
from llama_retrieval_ext.text.segmentation import chinese_segmenter
from llama_retrieval_ext.text.tokenizer import Tokenizer


def test_chinese_is_cut_into_words_and_the_words_in_them() -> None:
    words = chinese_segmenter()("中华人民共和国安全生产法")
    assert {"中华人民共和国", "人民", "共和国", "安全", "生产"} <= set(words)


def test_a_missing_rjieba_names_the_extra_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    tokenizer = Tokenizer(cjk="words")
    with pytest.raises(MissingDependencyError, match=r"llama-retrieval-ext\[zh\]") as caught:
        tokenizer.tokens("火灾")
    assert caught.value.extra == "zh"


def test_pairs_need_no_rjieba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    assert Tokenizer().query_tokens("火灾") == ["火灾"]
