"""Text that no writer meant: it must neither stop indexing nor take for ever.

The sizes are such that a quadratic step would run into the test's time-out.
"""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.tokenizer import Tokenizer

SIZE = 200_000
TOKENIZER = Tokenizer()
_random = random.Random(7)
HOSTILE = {
    "one letter": "a" * SIZE,
    "one name": "a." * (SIZE // 2),
    "underscores": "_" * SIZE,
    "white space": " \u3000\t" * (SIZE // 3),
    "signs": "+-.,#'" * (SIZE // 6),
    "marks on a letter": "a" + "\u0301\u0323" * (SIZE // 2),
    "marks on many letters": ("a" + "\u0301\u0323" * 20) * (SIZE // 41),
    "marks between joiners": "a" + "\u0301\u200d\u0323" * (SIZE // 3),
    "camel case": "aB" * (SIZE // 2),
    "digits": "1,000." * (SIZE // 6),
    "base 64": "".join(_random.choices(string.ascii_letters + string.digits + "+/", k=SIZE)),
    "Chinese": "火灾" * (SIZE // 2),
    "alternating scripts": "あア漢" * (SIZE // 3),
    "rare Chinese": "\U00020000" * SIZE,
    "Thai": "สวัสดี" * (SIZE // 6),
    "ligatures": "\ufdfa" * (SIZE // 18),
    "surrogates": "a\ud800\udc00b" * (SIZE // 4),
    "controls": "\0\x07\x1b" * (SIZE // 3),
    "emoji": "👩\u200d💻\ufe0f" * (SIZE // 4),
    "all of Unicode": "".join(map(chr, range(0x30000))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_cut_in_linear_time(name: str) -> None:
    tokens = TOKENIZER.tokens(HOSTILE[name])
    assert sum(TOKENIZER.term_counts(HOSTILE[name]).values()) == len(tokens)
    assert max(map(len, tokens), default=0) <= 1100


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=[])))
def test_any_characters_are_counted(text: str) -> None:
    counts = TOKENIZER.term_counts(text)
    assert all(0 <= term < 2**32 and count > 0 for term, count in counts.items())


@pytest.mark.parametrize("text", ["", " ", "\n\u3000", "...", "🔥", "___", "\ud800", "\u0301", "'"])
def test_text_without_words_has_no_tokens(text: str) -> None:
    assert TOKENIZER.tokens(text) == TOKENIZER.query_tokens(text) == []
    assert TOKENIZER.term_counts(text) == TOKENIZER.query_terms(text) == {}


def test_a_mark_on_a_digit_is_no_token_of_its_own() -> None:
    assert set(TOKENIZER.tokens("0\u0300")) == {"0"}


def test_a_hash_is_one_token() -> None:
    digest = "d41d8cd98f00b204e9800998ecf8427e"
    assert TOKENIZER.tokens(digest) == [digest]


def test_a_word_beyond_its_limit_is_found_by_itself() -> None:
    long = "x" * 1000
    assert set(TOKENIZER.query_tokens(long)) <= set(TOKENIZER.tokens(f"before {long} after"))
