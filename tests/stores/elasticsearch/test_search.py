"""Scores, ties and requests of searches on a real server."""

import math
from dataclasses import replace

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from llama_retrieval_ext.formulas.bm25 import bm25_term_weight
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stores.elasticsearch.client import HttpRequest, Json
from llama_retrieval_ext.stores.elasticsearch.store import (
    ElasticsearchBackend,
    ElasticsearchVectorStore,
)
from llama_retrieval_ext.stores.engine.backend import EngineFeatures, Search
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.stores.elasticsearch.msearch import Opener


def test_of_many_that_tie_the_smallest_ids_come_back(store: ElasticsearchVectorStore) -> None:
    store.add(
        [TextNode(id_=f"{999 - n:03}", text="word", embedding=[1.0, 0.0]) for n in range(300)]
    )
    backend = ElasticsearchBackend(store)
    expected = [f"{n:03}" for n in range(700, 707)]
    for found in (
        backend.dense([1.0, 0.0], Search(7)).function(),
        backend.keyword("word", Search(7)).function(),
    ):
        assert [each.node_id for each in found] == expected
    both = backend.hybrid([1.0, 0.0], "word", Search(7), nodes_last=True).function()
    for ranking in (both.vector, both.keyword):
        assert [node_id for node_id, _ in ranking] == expected


def test_a_keyword_score_is_bm25(store: ElasticsearchVectorStore) -> None:
    texts = {
        "a": "red red apple",
        "b": "red pear",
        "c": "green pear and a green apple",
        "d": "plum",
    }
    store.add([TextNode(id_=id_, text=text, embedding=[1.0]) for id_, text in texts.items()])
    found = ElasticsearchBackend(store).keyword("red", Search(10)).function()
    average = sum(len(text.split()) for text in texts.values()) / len(texts)
    idf = math.log1p((4 - 2 + 0.5) / (2 + 0.5))
    for each in found:
        words = texts[each.node_id].split()
        weight = bm25_term_weight(words.count("red"), length=len(words), average_length=average)
        assert each.score == pytest.approx(idf * weight, rel=1e-5)


def test_a_query_of_ten_thousand_words_is_answered(store: ElasticsearchVectorStore) -> None:
    store.add([TextNode(id_="a", text="word7", embedding=[1.0])])
    text = " ".join(f"word{n}" for n in range(10_000))
    found = ElasticsearchBackend(store).keyword(text, Search(10)).function()
    assert [each.node_id for each in found] == ["a"]


def test_a_servers_own_analyser_may_cut_the_words(open_store: Opener) -> None:
    store = open_store(store_params={"analyzer": "stop"})
    store.add([TextNode(id_="a", text="The Leaving of the-others", embedding=[1.0])])
    backend = ElasticsearchBackend(store)
    assert backend.keyword("leaving", Search(5)).function()
    assert not backend.keyword("leave", Search(5)).function()
    assert not backend.keyword("the", Search(5)).function()


def test_a_hybrid_query_is_one_request_for_ids_and_one_for_nodes_and_agrees_with_two_searches(
    store: ElasticsearchVectorStore, embed_model: FakeEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(sample_nodes(embed_model))
    sent: list[HttpRequest] = []
    send = store.transport.perform

    def counted(request: HttpRequest) -> Json:
        sent.append(request)
        return send(request)

    monkeypatch.setattr(store.transport, "perform", counted)
    backend = ElasticsearchBackend(store)
    hybrid = HybridRetriever(backend, embed_model=embed_model, fusion=RRF())
    query = Query("annual leave", top_k=8)
    hybrid.retrieve(query)  # the first search of an index with so few nodes is put twice
    sent.clear()
    hits = hybrid.retrieve(query)
    index = store.describe()["index"]
    assert [request.path for request in sent] == ["/_msearch", f"/{index}/_search"]

    class Apart(ElasticsearchBackend):
        @property
        def features(self) -> EngineFeatures:
            return replace(super().features, one_round_trip=False)

    apart = HybridRetriever(Apart(store), embed_model=embed_model, fusion=RRF())
    expected = apart.retrieve(query)
    assert [hit.node_id for hit in hits] == [hit.node_id for hit in expected]
    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected])
    assert len(sent) == 4
    sent.clear()
    assert len(hybrid.retrieve(Query("annual leave", top_k=60))) > 8
    assert [request.path for request in sent] == ["/_msearch"]


def test_more_hits_than_a_server_returns_are_refused_not_cut(
    store: ElasticsearchVectorStore,
) -> None:
    store.add([TextNode(id_="a", text="word", embedding=[1.0])])
    assert len(ElasticsearchBackend(store).dense([1.0], Search(10**6)).function()) == 1


def test_the_query_modes_of_llama_index(store: ElasticsearchVectorStore) -> None:
    store.add(
        [
            TextNode(id_="a", text="apple", embedding=[1.0, 0.0], metadata={"kind": "fruit"}),
            TextNode(id_="b", text="banana", embedding=[0.0, 1.0], metadata={"kind": "fruit"}),
            TextNode(id_="c", text="banana car", embedding=[0.6, 0.8]),
        ]
    )
    fruit = MetadataFilters(filters=[MetadataFilter(key="kind", value="fruit")])
    dense = VectorStoreQuery(query_embedding=[0.0, 1.0], similarity_top_k=2)
    assert store.query(dense).ids == ["b", "c"]
    words = VectorStoreQuery(query_str="banana", mode=VectorStoreQueryMode.TEXT_SEARCH)
    words.similarity_top_k = 2
    assert store.query(words).ids == ["c", "b"]  # "kind: fruit" is part of b's text
    words.sparse_top_k = 1
    assert store.query(words).ids == ["c"]
    both = VectorStoreQuery(
        query_embedding=[1.0, 0.0],
        query_str="banana",
        mode=VectorStoreQueryMode.HYBRID,
        similarity_top_k=3,
        filters=fruit,
    )
    assert sorted(store.query(both).ids or []) == ["a", "b"]
