from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.segmentation import LONGEST_KEY, BoundedCache


@given(st.lists(st.integers(0, 20)), st.integers(1, 5))
def test_a_cache_gives_what_the_function_gives(keys: list[int], entries: int) -> None:
    cache = BoundedCache[int, int](lambda key: key * key, entries=entries)
    assert [cache[key] for key in keys] == [key * key for key in keys]
    assert len(cache) <= entries


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


def test_threads_share_a_cache_that_is_too_small() -> None:
    cache = BoundedCache[int, int](lambda key: key + 1, entries=3)
    keys = list(range(10)) * 500
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(cache.__getitem__, keys)) == [key + 1 for key in keys]
