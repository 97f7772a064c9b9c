import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.legs import Ask, Leg, ask
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import Hit, SearchResult, node_ids
from llama_retrieval_ext.retrievers.store_retriever import VectorRetriever
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.testing.fakes import FakeAsyncRetriever, FakeEmbedding, FakeRetriever

Search = Callable[[Retriever, QueryType], SearchResult]
Composite = Callable[..., Retriever]

ENGLISH = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])
TWO_TENANTS = [
    ("acme-en", 0.9, "text", {"tenant_id": "acme", "lang": "en"}),
    ("globex-en", 0.8, "text", {"tenant_id": "globex", "lang": "en"}),
    ("acme-zh", 0.7, "text", {"tenant_id": "acme", "lang": "zh"}),
    ("nobody", 0.6, "text", {}),
]


class Remembers(Retriever):
    """One of ours, that remembers what it was asked."""

    def __init__(self, *, top_k: int = 7) -> None:
        super().__init__(top_k=top_k)
        self.asked: list[Query] = []

    def plan(self, query: Query) -> Plan[list[Hit]]:
        self.asked.append(query)
        hits: list[Hit] = yield Call(list)
        return hits


class Scribbles(FakeRetriever):
    """Writes into the bundle it gets, as LlamaIndex's vector retriever does (F9)."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        assert query_bundle.embedding is None
        query_bundle.embedding = [1.0, 2.0]
        query_bundle.custom_embedding_strs = ["scribble"]
        return super()._retrieve(query_bundle)


@pytest.mark.parametrize("query", ["query", QueryBundle("query"), Query("query", scope=ACME)])
def test_a_foreign_leg_gets_a_plain_bundle_of_its_own(
    fused: Composite, search: Search, query: QueryType
) -> None:
    one, two = FakeRetriever(), FakeAsyncRetriever()
    search(fused(one, fused(two)), query)
    bundles = one.calls + two.calls
    assert [type(bundle) for bundle in bundles] == [QueryBundle, QueryBundle]
    assert bundles[0] is not bundles[1]
    assert {bundle.query_str for bundle in bundles} == {"query"}


def test_a_foreign_leg_gets_everything_that_a_bundle_says(fused: Composite) -> None:
    leg = FakeRetriever()
    fused(leg).retrieve(QueryBundle("query", "picture.png", ["other words"], [0.5]))
    assert leg.calls == [QueryBundle("query", "picture.png", ["other words"], [0.5])]


def test_what_a_foreign_leg_writes_into_its_bundle_reaches_nobody(
    fused: Composite, search: Search
) -> None:
    query, ours = Query("query"), Remembers()
    search(fused(Scribbles(), ours, Scribbles()), query)
    assert query == Query("query")
    assert ours.asked[0].embedding is None
    assert ours.asked[0].custom_embedding_strs is None


def test_the_vector_retriever_of_llama_index_leaves_the_query_alone(
    fused: Composite, search: Search
) -> None:
    model = FakeEmbedding()
    index = VectorStoreIndex(nodes=sample_nodes(model), embed_model=model)
    query = Query("annual leave")
    result = search(fused(index.as_retriever(similarity_top_k=3)), query)
    assert len(result.hits) == 3
    assert query.embedding is None


def test_what_a_foreign_leg_finds_outside_the_scope_is_dropped_and_reported(
    fused: Composite, search: Search
) -> None:
    leg = FakeRetriever(TWO_TENANTS)
    result = search(fused(leg), Query("query", scope=ACME))
    assert node_ids(result.hits) == ["acme-en", "acme-zh"]
    (missing,) = result.degraded
    assert missing.where == "leg 0/FakeRetriever"
    assert missing.reason.startswith("2 of 4 hits were outside the query's scope or filters")


def test_what_a_foreign_leg_finds_outside_the_filters_is_dropped_and_reported(
    fused: Composite, search: Search
) -> None:
    leg = FakeRetriever(TWO_TENANTS)
    result = search(fused(leg), Query("query", filters=ENGLISH, scope=ACME))
    assert node_ids(result.hits) == ["acme-en"]
    assert result.degraded[0].reason.startswith("3 of 4")


def test_a_scope_bound_to_the_composite_holds_for_its_foreign_legs(
    fused: Composite, search: Search
) -> None:
    bound = fused(fused(FakeRetriever(TWO_TENANTS))).for_scope(ACME)
    assert node_ids(search(bound, "query").hits) == ["acme-en", "acme-zh"]


def test_without_scope_and_filters_a_foreign_leg_loses_nothing(
    fused: Composite, search: Search
) -> None:
    result = search(fused(FakeRetriever(TWO_TENANTS)), "query")
    assert len(result.hits) == 4
    assert result.degraded == ()


def test_hits_of_a_foreign_leg_are_not_changed(fused: Composite, search: Search) -> None:
    """LlamaIndex's fusion writes its scores into them (F1)."""
    leg = FakeRetriever(TWO_TENANTS)
    retriever = fused(leg, leg)
    first = search(retriever, "query").hits
    for hit in first:
        hit.score = 0.0
    assert [hit.score for hit in leg.hits] == [0.9, 0.8, 0.7, 0.6]
    assert [hit.score for hit in search(retriever, "query").hits] == [0.9, 0.8, 0.7, 0.6]


def test_ours_is_asked_with_scope_filters_and_context_and_its_own_number_of_hits(
    fused: Composite, search: Search
) -> None:
    ours = Remembers()
    scope = Scope("acme", ["handbook"])
    asked = Query("query", filters=ENGLISH, scope=scope, top_k=3, timeout_s=60, context={"a": 1})
    search(fused(ours), asked)
    (query,) = ours.asked
    assert (query.scope, query.condition) == (scope, asked.condition)
    assert query.context == {"a": 1}
    assert query.top_k == 7


@pytest.mark.parametrize(("of_leg", "of_ask", "asked"), [(None, None, 7), (4, None, 4), (4, 5, 5)])
def test_ours_is_asked_for_as_many_hits_as_the_leg_or_the_ask_says(
    of_leg: int | None, of_ask: int | None, asked: int
) -> None:
    ours = Remembers()
    leg = Leg("ours", ours, top_k=of_leg)
    run(ask({"leg": Ask(leg, Query("query", top_k=1), of_ask)}))
    asyncio.run(arun(ask({"leg": Ask(leg, Query("query", top_k=1), of_ask)})))
    assert [query.top_k for query in ours.asked] == [asked, asked]


def test_ours_that_is_bound_to_another_scope_refuses(fused: Composite, search: Search) -> None:
    ours = Remembers().for_scope(Scope("globex"))
    with pytest.raises(PermissionError, match="nothing in common"):
        search(fused(ours, FakeRetriever()), Query("query", scope=ACME))


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_foreign_leg_with_a_score_that_is_no_number_is_left_out_and_reported(
    fused: Composite, search: Search, score: float
) -> None:
    odd = Leg("odd", FakeRetriever([("a", score), ("b", 0.5)]))
    result = search(fused(odd, FakeRetriever([("c", 0.9)])), "query")
    assert node_ids(result.hits) == ["c"]
    assert "node 'a' has the score" in result.degraded[0].reason


class BlockingClientOnly(SimpleVectorStore):
    """As LlamaIndex's Qdrant and Milvus stores are without their async client."""

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        raise ValueError("the async client is not initialised")


def test_f6_a_store_with_a_blocking_client_only_answers_in_a_thread(
    fused: Composite, search: Search
) -> None:
    model, store = FakeEmbedding(), BlockingClientOnly()
    context = StorageContext.from_defaults(vector_store=store)
    index = VectorStoreIndex(sample_nodes(model), storage_context=context, embed_model=model)
    result = search(fused(index.as_retriever(similarity_top_k=3)), "annual leave")
    assert len(result.hits) == 3
    assert result.degraded == ()
    ours = VectorRetriever(index, embed_model=model, top_k=3)
    assert node_ids(search(ours, "annual leave").hits) == node_ids(result.hits)


def test_b7_a_retriever_that_names_its_parameter_otherwise_answers(
    fused: Composite, search: Search
) -> None:
    class Otherwise(FakeRetriever):
        def _retrieve(self, q: QueryBundle) -> list[NodeWithScore]:
            return super()._retrieve(q)

        async def _aretrieve(self, q: QueryBundle) -> list[NodeWithScore]:
            return super()._retrieve(q)

    result = search(fused(Otherwise([("a", 0.5)])), "query")
    assert node_ids(result.hits) == ["a"]
    assert result.degraded == ()


def test_a_retriever_whose_source_is_down_is_called_once(fused: Composite, search: Search) -> None:
    down = FakeAsyncRetriever(error=ConnectionError("down"))
    result = search(fused(down, FakeRetriever([("a", 0.5)])), "query")
    assert [part.reason for part in result.degraded] == ["ConnectionError: down"]
    assert len(down.calls) == 1
