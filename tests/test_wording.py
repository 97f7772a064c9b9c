"""Words that messages share."""

import pytest

from llama_retrieval_ext.wording import counted


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 hits"), (1, "1 hit"), (2, "2 hits"), (1000, "1,000 hits")]
)
def test_a_count_has_its_noun_in_singular_or_plural(number: int, words: str) -> None:
    assert counted(number, "hit") == words
