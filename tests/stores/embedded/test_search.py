"""Keyword scores are textbook BM25, computed here once more by brute force."""

# ruff: noqa: RUF001 - Chinese text has Chinese punctuation

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.execution.context import call
from llama_retrieval_ext.execution.drivers import DaemonPool, run
from llama_retrieval_ext.filters import ORDER_OPERATORS, Compare, Not
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.cases import cases
from tests.stores.filters_contract import FiltersContract
from tests.stores.odd_metadata import BIG, HARD_STRINGS, NUMBERS, STRINGS, OddMetadata, matching

TEXTS = [
    "leave of absence and annual leave",
    "annual report",
    "the leave, the leave, the leave and nothing but the leave of the whole long year",
    "员工年假为二十天，年底未休的年假作废",
    "def parse_filters(filters): return tree",
    "",
    "...",
    "a report about reports on annual reporting",
]


def bm25(
    texts: Sequence[str],
    query: str,
    *,
    measured: Sequence[str] = (),
    mean: float = 0.0,
    k1: float = 1.2,
) -> dict[int, float]:
    """Robertson's formula with Lucene's IDF; the mean length is given, or of the measured texts.

    As in Lucene, texts without terms do not count in the mean.
    """
    tokens = Tokenizer().tokens
    documents = [tokens(text) for text in texts]
    # With ten texts of 100 terms.
    lengths = [*filter(None, (len(tokens(text)) for text in measured or texts)), *[100] * 10]
    mean = mean or sum(lengths) / len(lengths)
    scores: dict[int, float] = {}
    for place, document in enumerate(documents):
        for term in Tokenizer().query_tokens(query):
            holders = sum(term in document for document in documents)
            idf = math.log(1 + (len(documents) - holders + 0.5) / (holders + 0.5))
            tf = document.count(term)
            norm = k1 * (1 - 0.75 + 0.75 * len(document) / mean)
            if tf:
                scores[place] = scores.get(place, 0.0) + idf * tf * (k1 + 1) / (tf + norm)
    return scores


def nodes(texts: Sequence[str], **metadata: str) -> list[TextNode]:
    tenant = metadata.get("tenant_id", "")
    return [
        TextNode(id_=f"{tenant}{place}", text=text, embedding=[1.0, 0.0], metadata=metadata)
        for place, text in enumerate(texts)
    ]


def scores(
    store: EmbeddedVectorStore, query: str, *, scope: Scope | None = None
) -> dict[str, float]:
    search = Search(1000, None if scope is None else scope.condition, scope)
    found = store.keyword(query, search).function()
    return {each.node_id: each.score for each in found}


def close_to(expected: dict[int, float], tenant: str = "") -> object:
    assert expected
    named = {f"{tenant}{place}": score for place, score in expected.items()}
    return pytest.approx(named, rel=1e-5)


@cases("query", ["annual leave", "年假", "leave leave report", "parse filters"])
def test_scores_are_bm25(store: EmbeddedVectorStore, query: str) -> None:
    store.add(nodes(TEXTS))
    assert scores(store, query) == close_to(bm25(TEXTS, query))


def test_compaction_weighs_texts_anew_if_the_mean_length_differs_by_more_than_a_tenth(
    store: EmbeddedVectorStore,
) -> None:
    short, long = ["annual leave " * 50], ["annual leave " * 55]  # 100 and 110 terms
    store.add(nodes(short))
    store.add(nodes([*short, *long]))
    before = scores(store, "annual leave")
    store.compact()
    assert scores(store, "annual leave") == before
    longest = [*short, *long, "annual leave " * 75]
    store.add(nodes(longest))
    store.compact()
    expected = bm25(longest, "annual leave", mean=(100 + 110 + 150) / 3)
    assert scores(store, "annual leave") == close_to(expected)


def test_the_mean_length_is_measured_anew_once_the_store_was_emptied(
    store: EmbeddedVectorStore,
) -> None:
    store.add(nodes(["one very long text about nothing " * 20]))
    store.delete_nodes(["0"])
    store.add(nodes(TEXTS))
    assert scores(store, "leave") == close_to(bm25(TEXTS, "leave"))


def test_deleted_and_replaced_nodes_no_longer_count(store: EmbeddedVectorStore) -> None:
    store.add(nodes([*TEXTS, *TEXTS]))
    store.delete_nodes([str(place) for place in range(len(TEXTS), 2 * len(TEXTS))])
    store.add(nodes(TEXTS[:1]))
    expected = bm25(TEXTS, "annual leave", measured=[*TEXTS, *TEXTS])
    assert scores(store, "annual leave") == close_to(expected)


def test_a_scope_measures_rarity_on_what_it_sees(store: EmbeddedVectorStore) -> None:
    store.add([*nodes(TEXTS, tenant_id="a"), *nodes(TEXTS[:2], tenant_id="b")])
    expected = bm25(TEXTS, "annual leave", measured=[*TEXTS, *TEXTS[:2]])
    assert scores(store, "annual leave", scope=Scope("a")) == close_to(expected, "a")


def test_metadata_is_searched_unless_it_is_excluded(store: EmbeddedVectorStore) -> None:
    node = TextNode(
        id_="n",
        text="text",
        embedding=[1.0, 0.0],
        metadata={"title": "Giraffe", "secret": "zebra", "tenant_id": "okapi", "kb_id": "gnu"},
        excluded_embed_metadata_keys=["secret"],
    )
    store.add([node])
    hits = {word: set(scores(store, word)) for word in ("giraffe", "zebra", "okapi", "gnu", "text")}
    assert hits == {"giraffe": {"n"}, "zebra": set(), "okapi": set(), "gnu": set(), "text": {"n"}}


def test_nodes_without_any_term_can_be_all_there_is(store: EmbeddedVectorStore) -> None:
    store.add(nodes(["", "..."]))
    assert scores(store, "leave") == {}
    store.add([TextNode(id_="n", text="leave", embedding=[1.0, 0.0])])
    assert set(scores(store, "leave")) == {"n"}


@pytest.mark.slow
@pytest.mark.parametrize("fusion", [WeightedSum(), RRF()], ids=["sum", "rrf"])
def test_hybrid_hits_among_equal_scores_do_not_depend_on_how_many_tied_before(
    fusion: WeightedSum | RRF, store: EmbeddedVectorStore
) -> None:
    nodes = [
        TextNode(
            id_=f"n{97 * number % 200}",
            text=f"annual leave w{number % 3}",
            embedding=[1.0, number % 50, 2.0],
        )
        for number in range(200)
    ]
    store.add(nodes)
    hybrid = HybridRetriever(store, fusion=fusion, candidates=20, top_k=5)
    for text in ("leave", "w1", "annual w2", "nothing", "w0", "w0 w1"):
        query = Query(text, embedding=[1.0, 20.0, 2.0])
        # An explanation reads every candidate with its node.
        expected = [hit.to_dict() for hit in hybrid.explain(query).hits]
        for _ in range(2):
            assert [hit.to_dict() for hit in hybrid.retrieve(query)] == expected


@pytest.mark.parametrize("kind", [VectorRetriever, KeywordRetriever, HybridRetriever])
async def test_an_async_search_starts_no_thread_as_the_engine_holds_the_gil(
    kind: Callable[[EmbeddedVectorStore], Retriever],
    store: EmbeddedVectorStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.add(nodes(TEXTS))
    query = Query("annual leave", embedding=[1.0, 0.0])
    expected = kind(store).retrieve(query)
    monkeypatch.setattr(DaemonPool, "submit", None)
    assert await kind(store).aretrieve(query) == expected


def test_nodes_that_changed_after_the_rankings_are_left_out(store: EmbeddedVectorStore) -> None:
    store.add(nodes(["annual leave", "annual report"], tenant_id="acme"))
    scope = Scope("acme")
    search = Search(100, scope.condition, scope)
    found = store.hybrid([1.0, 0.0], "annual", search, nodes_last=True).function()
    keys = [key for key, _ in found.vector]
    moved = TextNode(id_="acme1", text="moved", embedding=[1.0, 0.0], metadata={"tenant_id": "b"})
    store.add([moved])
    assert found.read is not None
    assert [each.node_id for each in found.read(keys).function().values()] == ["acme0"]


ODD = OddMetadata(strings=[*STRINGS, *HARD_STRINGS], numbers=[*NUMBERS, *BIG])
NODES = ODD.nodes(300, seed=7)


@pytest.fixture(scope="module")
def corpus() -> Iterator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as store:
        store.add(NODES)
        yield store


@pytest.fixture(scope="module")
def changing() -> Iterator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as store:
        yield store


class TestFilters(FiltersContract[EmbeddedVectorStore]):
    odd, nodes = ODD, NODES


@pytest.mark.slow
def test_a_number_of_17_digits_is_found_beside_texts_and_in_an_index() -> None:
    numbers = [0.9452706955539223, 0.38120423768821243, 0.1 + 0.2, 0.3, 2.0**70, 1e300]
    values = ["text", *numbers, *range(1, 100)]
    nodes = [
        TextNode(id_=str(at), text="t", metadata={"k": value}, embedding=[1.0, 0.0])
        for at, value in enumerate(values)
    ]
    with EmbeddedVectorStore(":memory:", index="hnsw") as store:
        store.add(nodes)
        for is_indexed in (False, True):
            assert not is_indexed or store.build_index()
            for number, operator in product(numbers, [*ORDER_OPERATORS, FilterOperator.EQ]):
                condition = Compare("k", operator, number)
                hits = run(call(store.dense([1.0, 0.0], Search(200, condition))))
                assert {hit.node_id for hit in hits} == matching(nodes, condition), condition


def test_a_date_or_list_is_found_from_the_first_node_that_has_one() -> None:
    dated = {"due": "2023-05-01", "tags": ["a"]}
    plain, new = (
        TextNode(id_=id_, text="t", metadata=metadata, embedding=[1.0, 0.0])
        for id_, metadata in (("plain", {}), ("dated", dated))
    )
    due = Compare("due", FilterOperator.LTE, "2024-01-01")
    with EmbeddedVectorStore(":memory:") as store:
        store.add([plain])
        assert "HasId" in repr(store.compile(due))  # no payload is looked through
        for nodes in ([plain], [plain, new]):
            store.add(nodes[1:])
            for condition in (due, Not(due), Compare("tags", FilterOperator.CONTAINS, "a")):
                hits = run(call(store.dense([1.0, 0.0], Search(9, condition))))
                assert {hit.node_id for hit in hits} == matching(nodes, condition), condition


@pytest.mark.parametrize("first", [TEXTS[:2], [""]], ids=["texts", "no terms"])
def test_the_mean_length_is_that_of_the_first_call(
    store: EmbeddedVectorStore, first: list[str]
) -> None:
    store.add(nodes(first))
    texts = [*first, *TEXTS]
    store.add(nodes(texts))
    assert scores(store, "leave") == close_to(bm25(texts, "leave", measured=first))


@pytest.mark.slow
def test_scores_of_a_store_filled_in_batches_are_bm25(store: EmbeddedVectorStore) -> None:
    texts = TEXTS * 100  # several batches of one call
    store.add(nodes(texts))
    assert scores(store, "annual leave") == close_to(bm25(texts, "annual leave"))
