from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.segmentation import term_id


def test_ids_do_not_change_between_releases() -> None:
    # CRC-32's own check value, and what stores have on disk.
    assert term_id("123456789") == 0xCBF43926
    assert term_id("火灾") == 243498011


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=[])))
def test_ids_are_unsigned_32_bit_numbers(token: str) -> None:
    assert 0 <= term_id(token) < 2**32


def test_common_chinese_pairs_do_not_collide() -> None:
    characters = [chr(code) for code in range(0x4E00, 0x4E00 + 300)]
    pairs = {first + second for first in characters for second in characters}
    assert len({term_id(pair) for pair in pairs}) >= len(pairs) - 5
