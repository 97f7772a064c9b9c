"""Where stages find the embeddings of hits: on the nodes, in stores, from a model."""

import copy
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from pydantic import PrivateAttr

from llama_retrieval_ext import (
    RRF,
    EmbeddedVectorStore,
    EmbeddingRerank,
    HybridRetriever,
    KeywordRetriever,
    VectorRetriever,
)
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.pipeline import Pipeline
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, origin_of
from llama_retrieval_ext.stages.rerank.mmr import MMR
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from tests.cases import cases
from tests.searching import Searched
from tests.stages.embedded_hits import QUERY, VECTORS, hits

TEXTS = [
    ("leave", 0.9, "annual leave days"),
    ("leave again", 0.8, "annual leave days"),
    ("sick", 0.7, "annual sick days"),
]


class NodeStore(BasePydanticVectorStore):
    """A store that gives nodes by their ids, with embeddings."""

    stores_text: bool = True
    _requests: list[list[str] | None] = PrivateAttr(default_factory=list)

    @property
    def client(self) -> None:
        return None

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        self._requests.append(node_ids)
        ids = VECTORS if node_ids is None else node_ids
        return [TextNode(id_=id_, embedding=VECTORS[id_]) for id_ in ids if id_ in VECTORS]

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        raise NotImplementedError

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        raise NotImplementedError

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        raise NotImplementedError


class NoNodesStore(NodeStore):
    def get_nodes(self, *_: object, **__: object) -> list[BaseNode]:
        raise NotImplementedError("get_nodes not implemented")


def test_embeddings_that_nodes_lack_come_from_the_store(searched: Searched) -> None:
    store = NodeStore()
    bare = hits(dict.fromkeys(VECTORS))
    source = FakeRetriever([(hit.node_id, hit.score) for hit in bare])
    pipeline = Pipeline(source, refines=[MMR(store=store)])
    found = searched(pipeline, QUERY)
    assert node_ids(found.hits) == node_ids(run(MMR().refine_plan(QUERY, hits())))
    assert store._requests == [list(VECTORS)]


def test_only_missing_embeddings_are_requested_from_the_store() -> None:
    store = NodeStore()
    some = hits({**VECTORS, "c": None})
    assert node_ids(run(MMR(store=store).refine_plan(QUERY, some)))[-1] == "a_dup"
    run(MMR(store=store).refine_plan(QUERY, hits()))
    assert store._requests == [["c"]]


def test_embeddings_come_from_a_function() -> None:
    requests: list[Sequence[str]] = []

    def lookup(ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        requests.append(ids)
        return VECTORS

    found = run(MMR(store=lookup).refine_plan(QUERY, hits(dict.fromkeys(VECTORS))))
    assert node_ids(found)[-1] == "a_dup"
    assert requests == [list(VECTORS)]


def test_texts_are_embedded_in_one_batch_where_nothing_is_stored(searched: Searched) -> None:
    model = FakeEmbedding()
    pipeline = FakeRetriever(TEXTS) >> MMR(embed_model=model)
    query = "annual leave days"
    found = searched(pipeline, query).hits
    assert node_ids(found) == ["leave", "sick", "leave again"]
    assert sorted(model.calls) == sorted([text for _, _, text in TEXTS] + [query])


def test_a_query_embedding_of_another_model_is_not_compared_with_texts_embedded_here() -> None:
    pipeline = FakeRetriever(TEXTS) >> MMR(embed_model=FakeEmbedding())
    query = Query("annual leave days", embedding=[1.0, 0.0])
    assert node_ids(pipeline.retrieve(query)) == ["leave", "sick", "leave again"]


@cases(
    ("stage", "query", "what"),
    [
        (MMR(), QUERY, "store="),
        (MMR(store=lambda ids: {}), QUERY, "embed_model="),
        (MMR(store=lambda ids: VECTORS), Query("no embedding"), "embed_model="),
    ],
)
def test_a_missing_source_of_embeddings_is_an_error_that_names_the_argument(
    stage: MMR, query: Query, what: str
) -> None:
    with pytest.raises(ConfigurationError, match=what):
        run(stage.refine_plan(query, hits(dict.fromkeys(VECTORS))))


def test_a_store_that_cannot_give_nodes_is_an_error() -> None:
    pipeline = FakeRetriever([("a", 0.9)]) >> MMR(store=NoNodesStore())
    with pytest.raises(ConfigurationError, match="NoNodesStore cannot give nodes"):
        pipeline.retrieve(QUERY)


class CountingStore(EmbeddedVectorStore):
    """Records the ids of each request."""

    _requests: list[list[str]] = PrivateAttr(default_factory=list)

    def __init__(self) -> None:
        super().__init__(":memory:")

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        self._requests.append(list(node_ids or []))
        return super().get_nodes(node_ids, filters)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        self._requests.append(list(node_ids or []))
        return await super().aget_nodes(node_ids, filters)


def filled(model: FakeEmbedding, *, prefix: str = "") -> CountingStore:
    store = CountingStore()
    texts = [(prefix + id_, text) for id_, _, text in TEXTS]
    store.add(
        [
            TextNode(id_=id_, text=text, embedding=model.get_text_embedding(text))
            for id_, text in texts
        ]
    )
    model.calls.clear()
    return store


def test_embeddings_come_in_one_request_from_the_store_of_the_hits(searched: Searched) -> None:
    model = FakeEmbedding()
    store = filled(model)
    legs = VectorRetriever(store, embed_model=model) | KeywordRetriever(store)
    for retriever in (legs >> RRF(), HybridRetriever(store, embed_model=model)):
        pipeline = retriever >> MMR(0.5)
        query = "annual leave days"
        found = searched(pipeline, query)
        assert node_ids(found.hits) == ["leave", "sick", "leave again"]
        assert found.degraded == ()
        assert [sorted(ids) for ids in store._requests] == [["leave", "leave again", "sick"]]
        assert model.calls == [query]
        store._requests.clear()
        model.calls.clear()


def test_embeddings_of_two_stores_come_in_one_request_each() -> None:
    model = FakeEmbedding()
    one, two = filled(model), filled(model, prefix="two ")
    pipeline = branches(
        one=VectorRetriever(one, embed_model=model), two=VectorRetriever(two, embed_model=model)
    )
    assert len((pipeline >> RRF() >> MMR(0.5)).retrieve("annual leave days")) == 6
    assert (len(one._requests), len(two._requests)) == (1, 1)


def test_stores_with_different_models_are_refused() -> None:
    one, two = FakeEmbedding(), FakeEmbedding(seed=1, model_name="other")
    legs = branches(
        one=VectorRetriever(filled(one), embed_model=one),
        two=VectorRetriever(filled(two, prefix="two "), embed_model=two),
    )
    with pytest.raises(ConfigurationError, match=r"'other'.*cannot be compared"):
        (legs >> RRF() >> MMR(0.5)).retrieve("annual leave days")


def test_mmr_after_a_vector_search_that_fails_leaves_the_order() -> None:
    model = FakeEmbedding()
    store = filled(model)
    pipeline = HybridRetriever(store, embed_model=model) >> MMR(0.7)
    separate = (VectorRetriever(store, embed_model=model) | KeywordRetriever(store)) >> RRF()
    model.fail = ConnectionError("no model")
    for each in (pipeline, separate >> MMR(0.7)):
        result = each.search("annual leave days")
        assert len(result.hits) == 3
        assert "MMR" in [part.where for part in result.degraded]


def test_the_origin_of_a_hit_is_not_part_of_its_value() -> None:
    model = FakeEmbedding()
    hits = VectorRetriever(filled(model), embed_model=model).search("annual leave days").hits
    plain = [Hit(node=hit.node, score=hit.score, source=hit.source) for hit in hits]
    assert all(origin_of(hit) is not None for hit in hits)
    assert hits == plain
    assert repr(hits) == repr(plain)
    for hit, same in zip(hits, plain, strict=True):
        shown = {name: value for name, value in hit.to_dict().items() if name != "highlights"}
        assert shown == same.to_dict()
    assert [hit.model_dump() for hit in hits] == [hit.model_dump() for hit in plain]
    again = pickle.loads(pickle.dumps(hits))
    assert again == hits
    assert [origin_of(hit) for hit in again] == [None] * 3
    assert all(origin_of(hit) is not None for hit in hits), "pickling took it away"
    assert origin_of(copy.deepcopy(hits[0])) is origin_of(hits[0])


def test_embedding_rerank_by_the_model_of_the_store_uses_stored_embeddings() -> None:
    model = FakeEmbedding()
    store = filled(model)
    pipeline = KeywordRetriever(store) >> EmbeddingRerank(model)
    anew = node_ids(pipeline.retrieve("annual leave days"))
    assert len(model.calls) == 4
    model.calls.clear()
    stored = VectorRetriever(store, embed_model=model) >> EmbeddingRerank(model)
    assert node_ids(stored.retrieve("annual leave days")) == anew
    assert model.calls == ["annual leave days"]


def test_embeddings_of_hits_of_a_llama_index_retriever_come_from_its_store() -> None:
    model = FakeEmbedding()
    nodes = [TextNode(id_=id_, text=text) for id_, _, text in TEXTS]
    index = VectorStoreIndex(nodes, embed_model=model)
    model.calls.clear()
    stock = index.as_retriever(similarity_top_k=3)
    for pipeline in (stock >> MMR(0.5), branches(stock, FakeRetriever()) >> RRF() >> MMR(0.5)):
        found = pipeline.search("annual leave days")
        assert node_ids(found.hits)[1] == "sick"
        assert found.degraded == ()
    assert set(model.calls) == {"annual leave days"}
