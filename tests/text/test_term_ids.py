from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.segmentation import NO_TERM, GramIds, document_grams, runs, term_id

GRAM_IDS = GramIds()


@given(st.text(alphabet="火灾災法臺タワーへ한국a, \n\0\U00020000\U0001f525\ud800"))
def test_every_gram_is_counted_as_if_it_were_a_string(text: str) -> None:
    counts: Counter[int] = Counter()
    GRAM_IDS.count(text, into=counts)
    del counts[NO_TERM]
    assert counts == Counter(term_id(gram) for run in runs(text) for gram in document_grams(run))


def test_counts_are_added_to_those_there_are() -> None:
    counts = Counter({term_id("火"): 2})
    GRAM_IDS.count("火", into=counts)
    assert counts[term_id("火")] == 3


def test_a_character_and_its_pair_with_nothing_are_told_apart() -> None:
    counts: Counter[int] = Counter()
    GRAM_IDS.count("火\0", into=counts)
    assert counts[term_id("火")] == 1
