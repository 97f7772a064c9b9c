"""Scores agree with the formula, bm25s and the embedded engine, also after changes."""

import math
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode

from llama_retrieval_ext import BM25Retriever, KeywordRetriever
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers.bm25.index import best
from llama_retrieval_ext.schema import DEFAULT_SCHEMA, Schema
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding
from llama_retrieval_ext.testing.corpus import SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.text import Tokenizer

WORDS = ("ant", "bee", "cat", "dog", "eel", "fox")
CORPORA = st.lists(st.lists(st.sampled_from(WORDS), max_size=8), min_size=1, max_size=12)


def _brute_force(
    documents: Mapping[str, list[str]], query: list[str], *, k1: float, b: float
) -> dict[str, float]:
    n_docs = len(documents)
    average = sum(map(len, documents.values())) / n_docs
    scores: dict[str, float] = {}
    for node_id, tokens in documents.items():
        total = 0.0
        for term in query:
            frequency = sum(term in other for other in documents.values())
            idf = math.log(1 + (n_docs - frequency + 0.5) / (frequency + 0.5))
            tf = tokens.count(term)
            if tf:
                total += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(tokens) / average))
        if total:
            scores[node_id] = total
    return scores


@given(
    corpus=CORPORA,
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=5),
    k1=st.floats(0, 3),
    b=st.floats(0, 1),
)
def test_scores_are_those_of_the_formula(
    corpus: list[list[str]], query: list[str], k1: float, b: float
) -> None:
    documents = {f"{number:02}": tokens for number, tokens in enumerate(corpus)}
    nodes = [TextNode(id_=id_, text=" ".join(tokens)) for id_, tokens in documents.items()]
    retriever = BM25Retriever(nodes, top_k=len(nodes), k1=k1, b=b)
    found = {hit.node_id: hit.score for hit in retriever.retrieve(" ".join(query))}
    assert found == pytest.approx(_brute_force(documents, query, k1=k1, b=b), rel=1e-5)


@given(
    scores=st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0]), max_size=60),
    repeat=st.integers(1, 60),
    top_k=st.integers(1, 300),
)
def test_the_selection_equals_the_first_of_the_sorted_scores(
    scores: list[float], repeat: int, top_k: int
) -> None:
    array = np.array(scores * repeat, np.float32)
    expected = sorted(np.flatnonzero(array).tolist(), key=lambda at: (-array[at], at))[:top_k]
    assert best(array, top_k).tolist() == expected


@pytest.mark.reference
def test_hits_and_scores_are_those_of_the_embedded_engine(embed_model: FakeEmbedding) -> None:
    # Texts without terms count in the mean length of bm25s, and not in that of the engine, which
    # takes texts to have some 100 terms until many have shown what they have.
    tokens = Tokenizer().tokens
    nodes = [node for node in sample_nodes(embed_model) if tokens(DEFAULT_SCHEMA.everything(node))]
    lengths = [len(tokens(DEFAULT_SCHEMA.everything(node))) for node in nodes]
    missing = 100 * (len(nodes) + 1) - sum(lengths)
    nodes.append(TextNode(text="filler " * missing, embedding=embed_model.get_text_embedding("x")))
    retriever = BM25Retriever(nodes, top_k=len(nodes))
    with EmbeddedVectorStore(
        ":memory:", schema=Schema(text={"*": 1, "title": 0, "headings": 0})
    ) as store:
        store.add(nodes)
        engine = KeywordRetriever(store, top_k=len(nodes))
        for query in (*SAMPLE_QUERIES, "annual annual leave", "员工 leave"):
            hits, theirs = retriever.retrieve(query), engine.retrieve(query)
            assert node_ids(hits) == node_ids(theirs)
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in theirs])


MIXED = ("ant", "bee", "cat", "dog", "火灾", "消防", "get_user")
TEXTS = st.lists(st.sampled_from(MIXED), max_size=6).map(" ".join)
NODES = st.dictionaries(st.sampled_from("abcdefghij"), TEXTS, max_size=6)
CHANGES = st.lists(NODES | st.frozensets(st.sampled_from("abcdefghij"), max_size=4), max_size=6)


def _made(texts: dict[str, str]) -> Iterable[TextNode]:
    return (TextNode(id_=node_id, text=text) for node_id, text in texts.items())


def _answers(retriever: BM25Retriever) -> list[list[tuple[str, float | None]]]:
    queries = (*MIXED, " ".join(MIXED))
    found = [retriever.search(query, top_k=20).hits for query in queries]
    return [[(hit.node_id, hit.score) for hit in hits] for hits in found]


@pytest.mark.slow
@given(start=NODES, changes=CHANGES)
def test_after_any_changes_hits_and_scores_equal_those_of_a_new_index(
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


def test_empty_changes_do_not_rebuild_the_index() -> None:
    retriever = BM25Retriever(sample_nodes())
    before = retriever._index.built()
    assert retriever.delete(["unknown"]) == 0
    retriever.add([])
    assert retriever._index.built() is before


def test_adding_an_invalid_item_leaves_the_index_unchanged() -> None:
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


@pytest.mark.slow
def test_searches_see_whole_changes_while_threads_change_the_index() -> None:
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
