"""An index that was changed answers as one made afresh, and threads see whole changes."""

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.retrievers.bm25.postings import Postings
from llama_retrieval_ext.testing.corpus import sample_nodes

WORDS = ("ant", "bee", "cat", "dog", "火灾", "消防", "get_user")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
NODES = st.dictionaries(st.sampled_from("abcdefghij"), TEXTS, max_size=6)
CHANGES = st.lists(NODES | st.frozensets(st.sampled_from("abcdefghij"), max_size=4), max_size=6)


def _made(texts: dict[str, str]) -> Iterable[TextNode]:
    return (TextNode(id_=node_id, text=text) for node_id, text in texts.items())


def _answers(retriever: BM25Retriever) -> list[list[tuple[str, float | None]]]:
    queries = (*WORDS, " ".join(WORDS))
    found = [retriever.search(query, top_k=20).hits for query in queries]
    return [[(hit.node_id, hit.score) for hit in hits] for hits in found]


@given(start=NODES, changes=CHANGES)
def test_after_any_changes_it_equals_a_fresh_one(
    start: dict[str, str], changes: list[dict[str, str] | frozenset[str]]
) -> None:
    retriever = BM25Retriever(_made(start))
    held = dict(start)
    for change in changes:
        if isinstance(change, dict):
            retriever.add(_made(change))
            held |= change
        else:
            assert retriever.delete(change) == len(held.keys() & change)
            held = {node_id: text for node_id, text in held.items() if node_id not in change}
    assert _answers(retriever) == _answers(BM25Retriever(_made(held)))


@given(start=NODES, changes=CHANGES)
def test_changed_postings_are_those_of_a_fresh_index_to_the_bit(
    start: dict[str, str], changes: list[dict[str, str] | frozenset[str]]
) -> None:
    retriever = BM25Retriever(_made(start))
    for change in changes:
        if isinstance(change, dict):
            retriever.add(_made(change))
        else:
            retriever.delete(change)
    changed = retriever._index.snapshot
    fresh = BM25Retriever(changed.nodes.values())._index.snapshot.postings
    for name in ("terms", "starts", "documents", "counts", "lengths"):
        ours, theirs = getattr(changed.postings, name), getattr(fresh, name)
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)


def test_no_document_and_no_term_are_postings_too() -> None:
    none = Postings.of([])
    assert none.fit(0)
    assert none.columns({7: 1}).tolist() == []
    assert none.weights(k1=1.2, b=0.75).tolist() == []
    wordless = Postings.of([{}, {}])
    assert wordless.fit(2)
    assert wordless.weights(k1=1.2, b=0.75).tolist() == []


def test_terms_of_the_query_that_no_document_has_are_left_out() -> None:
    postings = Postings.of([{5: 1, 2**32 - 2: 1}, {9: 1}])
    query = {4: 1, 5: 2, 7: 1, 9: 1, 2**32 - 2: 1, 2**32 - 1: 3}
    assert postings.columns(query).tolist() == [0, 0, 1, 2]


def test_deleting_nothing_and_adding_nothing_change_nothing() -> None:
    retriever = BM25Retriever(sample_nodes())
    before = retriever._index.snapshot
    assert retriever.delete([]) == 0
    assert retriever.delete(["unknown"]) == 0
    retriever.add([])
    assert retriever._index.snapshot is before


def test_a_refused_node_leaves_the_index_as_it_was() -> None:
    retriever = BM25Retriever(sample_nodes())
    with pytest.raises(ConfigurationError):
        retriever.add([TextNode(id_="n", text="quince"), "text"])  # type: ignore[list-item]
    assert retriever.retrieve("quince") == []


def _pair(number: int) -> list[TextNode]:
    """Two nodes that are always put in and taken out together."""
    word = "".join(chr(ord("a") + int(digit)) for digit in str(number))
    return [TextNode(id_=f"{number} {half}", text=f"pair {word}zz") for half in "ab"]


def _write_pairs(retriever: BM25Retriever, start: int) -> None:
    for number in range(start, start + 60):
        first, second = _pair(number)
        retriever.add([first, second])
        assert len(retriever.retrieve(first.text.split()[1])) == 2
        if number % 3 == 0:
            assert retriever.delete([first.node_id, second.node_id]) == 2


def test_readers_see_whole_changes_while_writers_write() -> None:
    retriever = BM25Retriever(_pair(0), top_k=1000)
    torn: list[list[str]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = node_ids(retriever.retrieve("pair"))
            if 2 * len({node_id.split()[0] for node_id in found}) != len(found):
                torn.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in readers:
        thread.start()
    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(_write_pairs, retriever, start) for start in (100, 200, 300)]
    done.set()
    for thread in readers:
        thread.join()
    assert [each.result() for each in writing] == [None, None, None]
    assert torn == []
    assert len(retriever.retrieve("pair")) == 2 * (1 + 3 * 40)
