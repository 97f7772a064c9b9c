"""How retrievers of LlamaIndex and of this package are called, and how queries are embedded."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.indices.vector_store.retrievers import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

from llama_retrieval_ext import Hit, Query, Retriever, Scope, VectorRetriever
from llama_retrieval_ext.embeddings.recorded import RecordedEmbedding
from llama_retrieval_ext.errors import TooFewLegsError
from llama_retrieval_ext.execution import Call, Plan
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.legs import Ask, Leg, ask
from llama_retrieval_ext.execution.retrieval import embed
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.testing.fakes import FakeAsyncRetriever, FakeEmbedding, FakeRetriever
from tests.cases import cases
from tests.execution.conftest import Composite, Search
from tests.meeting import Meeting, Meets, met_by_the_loop
from tests.patience import unless_stalled

Embedded = Callable[..., Retriever]


def test_a_query_is_embedded_once_however_many_legs_there_are(
    fused: Composite, embedded: Embedded, search_anywhere: Search
) -> None:
    model = FakeEmbedding(delay_s=0.02)
    legs = [embedded(model, name=name) for name in "abc"]
    nested = fused(*legs, fused(embedded(model, name="d"), fused(embedded(model, name="e"))))
    assert sorted(node_ids(search_anywhere(nested, "annual leave").hits)) == [
        "a",
        "b",
        "c",
        "d",
        "e",
    ]
    assert model.calls == ["annual leave"]


def test_each_model_embeds_for_its_own_legs(
    fused: Composite, embedded: Embedded, search_anywhere: Search
) -> None:
    """LlamaIndex lets the first leg's embedding leak to legs with other models (F9)."""
    small, large = FakeEmbedding(dim=8, delay_s=0.01), FakeEmbedding(dim=16, delay_s=0.01)
    legs = [embedded(small, name="s1"), embedded(large, name="l1")]
    legs += [embedded(small, name="s2"), embedded(large, name="l2")]
    hits = search_anywhere(fused(*legs), "annual leave").hits
    dimensions = {hit.node.node_id: hit.score for hit in hits}
    assert dimensions == {"s1": 8, "s2": 8, "l1": 16, "l2": 16}
    assert (small.calls, large.calls) == (["annual leave"], ["annual leave"])


def test_two_models_of_one_name_do_not_share(fused: Composite, embedded: Embedded) -> None:
    one, two = FakeEmbedding(seed=1), FakeEmbedding(seed=2)
    fused(embedded(one), embedded(two)).retrieve("annual leave")
    assert (one.calls, two.calls) == (["annual leave"], ["annual leave"])


def test_an_embedding_of_the_query_is_used(
    fused: Composite, embedded: Embedded, search: Search
) -> None:
    model = FakeEmbedding(dim=8)
    query = Query("annual leave", embedding=[0.5] * 3)
    (hit,) = search(fused(embedded(model)), query).hits
    assert hit.score == 3
    assert model.calls == []


def test_several_embedding_texts_give_their_mean() -> None:
    model = FakeEmbedding(dim=4)
    query = Query("leave", custom_embedding_strs=["annual leave", "sick leave"])
    one, two = model.get_text_embedding("annual leave"), model.get_text_embedding("sick leave")
    expected = [(a + b) / 2 for a, b in zip(one, two, strict=True)]
    assert run(embed(query, model)) == pytest.approx(expected)
    assert asyncio.run(arun(embed(query, model))) == pytest.approx(expected)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_model_whose_async_method_is_its_blocking_one_leaves_the_event_loop_free(
    embedded: Embedded, recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = Meeting(2)

    class Blocks(FakeEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            meeting.join()
            return super()._get_query_embedding(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)

    model: BaseEmbedding = Blocks()
    if recorded:
        monkeypatch.setattr(RecordedEmbedding, "model", lambda _: Blocks())
        model = RecordedEmbedding(recorded_name="Blocks")
    result = asyncio.run(met_by_the_loop(embedded(model, name="a"), meeting))
    assert node_ids(result.hits) == ["a"]


def test_a_retriever_whose_async_method_is_its_blocking_one_leaves_the_event_loop_free(
    fused: Composite,
) -> None:
    class Blocks(Meets):
        async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return self._retrieve(query_bundle)

    meeting = Meeting(2)
    result = asyncio.run(met_by_the_loop(fused(Blocks([("a", 0.5)], meeting)), meeting))
    assert node_ids(result.hits) == ["a"]


def test_an_async_method_that_a_mock_replaces_on_the_object_is_the_one_called(
    fused: Composite, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever = FakeRetriever([("blocking", 0.5)])
    hits = FakeRetriever([("mocked", 0.5)]).retrieve("leave")
    monkeypatch.setattr(retriever, "_aretrieve", AsyncMock(return_value=hits))
    assert node_ids(asyncio.run(fused(retriever).aretrieve("leave"))) == ["mocked"]


def test_a_model_with_an_async_method_alone_embeds_for_blocking_callers() -> None:
    class Awaited(FakeEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            raise NotImplementedError

    model = Awaited(dim=4)
    assert run(embed(Query("leave"), model)) == asyncio.run(model.aget_query_embedding("leave"))


def test_each_query_is_embedded_again(fused: Composite, embedded: Embedded) -> None:
    model = FakeEmbedding()
    retriever = fused(embedded(model), embedded(model))
    retriever.retrieve("annual leave")
    retriever.retrieve("annual leave")
    assert model.calls == ["annual leave"] * 2


def test_a_model_that_fails_takes_only_its_legs_down(
    fused: Composite, embedded: Embedded, search: Search
) -> None:
    model = FakeEmbedding(delay_s=0.01, fail=ConnectionError("no model"))
    legs = [Leg("one", embedded(model)), Leg("two", embedded(model))]
    result = search(fused(*legs, FakeRetriever([("a", 0.5)])), "annual leave")
    assert node_ids(result.hits) == ["a"]
    assert [(part.where, part.reason) for part in result.degraded] == [
        ("one", "ConnectionError: no model"),
        ("two", "ConnectionError: no model"),
    ]


def test_a_retry_after_a_failure_embeds_again(fused: Composite, embedded: Embedded) -> None:
    model = FakeEmbedding(fail=ConnectionError("no model"))
    leg = Leg("leg", embedded(model), retries=2, backoff_s=0.001)
    with pytest.raises(TooFewLegsError):
        fused(leg).retrieve("annual leave")
    assert len(model.calls) == 3


@pytest.mark.slow
@unless_stalled
def test_a_late_leg_that_embeds_leaves_the_embedding_to_the_others(
    fused: Composite, embedded: Embedded, search: Search
) -> None:
    model = FakeEmbedding(delay_s=0.3)
    late = Leg("late", fused(embedded(model, name="late")), timeout_s=0.03)
    result = search(fused(late, fused(embedded(model, name="a"))), "annual leave")
    assert node_ids(result.hits) == ["a"]
    assert "late" in [part.where for part in result.degraded]


def test_a_leg_that_blocks_the_loop_does_not_deadlock_the_embedding(
    fused: Composite, embedded: Embedded
) -> None:
    model = FakeEmbedding(delay_s=0.02)
    child = embedded(model, name="b")

    class BlocksTheLoop(FakeRetriever):
        async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            await asyncio.sleep(0)
            return child.retrieve(query_bundle)

    retriever = fused(embedded(model, name="a"), BlocksTheLoop())
    hits = asyncio.run(asyncio.wait_for(retriever.aretrieve("annual leave"), 5))
    assert node_ids(hits) == ["a", "b"]


def index_over(model: FakeEmbedding) -> VectorStoreIndex:
    return VectorStoreIndex(nodes=sample_nodes(model), embed_model=model)


def test_vector_retrievers_of_llama_index_share_one_embedding_per_text(
    embedded: Embedded, search: Search
) -> None:
    model = FakeEmbedding(delay_s=0.01)
    index = index_over(model)
    legs = [Leg("ours", embedded(model))]
    legs += [Leg(f"theirs {n}", index.as_retriever(similarity_top_k=n)) for n in (1, 2)]
    before = len(model.calls)

    class Asking(Retriever):
        def plan(self, query: Query) -> Plan[list[Hit]]:
            asks = {text + leg.name: Ask(leg, Query(text)) for text in "abcd" for leg in legs}
            rankings = yield from ask(asks)
            assert all(map(rankings.get, asks))
            return []

    assert search(Asking(top_k=1), "query").degraded == ()
    assert sorted(model.calls[before:]) == ["a", "b", "c", "d"]


def test_an_embedding_is_not_used_by_a_vector_retriever_of_another_model(
    fused: Composite, search: Search
) -> None:
    small, large = FakeEmbedding(dim=8), FakeEmbedding(dim=16)
    legs = [index_over(model).as_retriever(similarity_top_k=3) for model in (small, large)]
    before = [len(model.calls) for model in (small, large)]
    query = QueryBundle("annual leave")
    result = search(fused(*legs, *legs), query)
    assert result.degraded == ()
    assert query.embedding is None
    calls = [model.calls[n:] for model, n in zip((small, large), before, strict=True)]
    assert calls == [["annual leave"], ["annual leave"]]


def test_a_subclass_of_the_vector_retriever_embeds_its_own_query(
    fused: Composite, search: Search
) -> None:
    class Shouts(VectorIndexRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return super()._retrieve(QueryBundle(query_bundle.query_str.upper()))

        async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return await super()._aretrieve(QueryBundle(query_bundle.query_str.upper()))

    model = FakeEmbedding()
    leg = Shouts(index_over(model))
    before = len(model.calls)
    assert search(fused(leg), "annual leave").hits
    assert model.calls[before:] == ["ANNUAL LEAVE"]


ENGLISH = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])
TWO_TENANTS = [
    ("acme-en", 0.9, "text", {"tenant_id": "acme", "lang": "en"}),
    ("globex-en", 0.8, "text", {"tenant_id": "globex", "lang": "en"}),
    ("acme-zh", 0.7, "text", {"tenant_id": "acme", "lang": "zh"}),
    ("nobody", 0.6, "text", {}),
]


class Records(Retriever):
    """A retriever of this package that records its queries."""

    def __init__(self, *, top_k: int = 7) -> None:
        super().__init__(top_k=top_k)
        self.queries: list[Query] = []

    def plan(self, query: Query) -> Plan[list[Hit]]:
        self.queries.append(query)
        hits: list[Hit] = yield Call(list)
        return hits


class WritesIntoBundle(FakeRetriever):
    """Writes into the bundle it gets, as LlamaIndex's vector retriever does (F9)."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        assert query_bundle.embedding is None
        query_bundle.embedding = [1.0, 2.0]
        query_bundle.custom_embedding_strs = ["scribble"]
        return super()._retrieve(query_bundle)


@cases("query", ["query", QueryBundle("query"), Query("query", scope=ACME)])
def test_each_leg_of_llama_index_gets_its_own_plain_bundle(
    fused: Composite, search: Search, query: QueryType
) -> None:
    one, two = FakeRetriever(), FakeAsyncRetriever()
    search(fused(one, fused(two)), query)
    bundles = one.calls + two.calls
    assert [type(bundle) for bundle in bundles] == [QueryBundle, QueryBundle]
    assert bundles[0] is not bundles[1]
    assert {bundle.query_str for bundle in bundles} == {"query"}


def test_a_leg_that_writes_into_its_bundle_changes_no_other_query(
    fused: Composite, search: Search
) -> None:
    query, ours = Query("query"), Records()
    search(fused(WritesIntoBundle(), ours, WritesIntoBundle()), query)
    assert query == Query("query")
    assert ours.queries[0].embedding is None
    assert ours.queries[0].custom_embedding_strs is None


@cases(
    ("filters", "kept", "reason"),
    [(None, ["acme-en", "acme-zh"], "2 of 4 hits were outside"), (ENGLISH, ["acme-en"], "3 of 4")],
)
def test_hits_outside_scope_or_filters_are_dropped_and_reported(
    fused: Composite, search: Search, filters: MetadataFilters | None, kept: list[str], reason: str
) -> None:
    result = search(fused(FakeRetriever(TWO_TENANTS)), Query("q", filters=filters, scope=ACME))
    assert node_ids(result.hits) == kept
    (missing,) = result.degraded
    assert missing.where == "leg 0/FakeRetriever"
    assert missing.reason.startswith(reason)


def test_a_leg_gets_scope_filters_and_context_and_its_own_top_k(
    fused: Composite, search: Search
) -> None:
    ours = Records()
    scope = Scope("acme", ["handbook"])
    original = Query("query", filters=ENGLISH, scope=scope, top_k=3, timeout_s=60, context={"a": 1})
    search(fused(ours), original)
    (query,) = ours.queries
    assert (query.scope, query.condition) == (scope, original.condition)
    assert query.context == {"a": 1}
    assert query.top_k == 7


def test_a_leg_bound_to_another_scope_is_refused(fused: Composite, search: Search) -> None:
    ours = Records().for_scope(Scope("globex"))
    with pytest.raises(PermissionError, match="nothing in common"):
        search(fused(ours, FakeRetriever()), Query("query", scope=ACME))


@cases("score", [float("nan"), float("inf")])
def test_a_leg_with_a_score_that_is_not_finite_is_left_out_and_reported(
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


def test_a_store_without_an_async_client_is_called_in_a_thread(
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


def test_a_retriever_with_another_parameter_name_is_called(
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
