import asyncio
from collections.abc import Callable

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.indices.vector_store.retrievers import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType

from llama_retrieval_ext.errors import TooFewLegsError
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.legs import Ask, Leg, ask
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.retrieval import embed
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, SearchResult, node_ids
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever

Search = Callable[[Retriever, QueryType], SearchResult]
Composite = Callable[..., Retriever]
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


@pytest.mark.parametrize("way", ["threads", "loop"])
def test_four_queries_to_three_legs_take_four_embeddings(embedded: Embedded, way: str) -> None:
    """LlamaIndex's fusion takes twelve (F8)."""
    model = FakeEmbedding(delay_s=0.01)
    legs = [Leg(name, embedded(model, name=name)) for name in "abc"]
    texts = ["one", "two", "three", "four"]
    plan = ask({f"{text} {leg.name}": Ask(leg, Query(text)) for text in texts for leg in legs})
    answers = run(plan) if way == "threads" else asyncio.run(arun(plan))
    assert len(answers) == 12
    assert sorted(model.calls) == sorted(texts)


def test_an_embedding_that_the_query_carries_is_used(
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


def test_the_next_question_is_embedded_anew(fused: Composite, embedded: Embedded) -> None:
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


def test_a_failure_is_not_remembered(fused: Composite, embedded: Embedded, search: Search) -> None:
    model = FakeEmbedding(fail=ConnectionError("no model"))
    retriever = fused(embedded(model, name="a"))
    with pytest.raises(TooFewLegsError):
        search(retriever, "annual leave")
    model.fail = None
    assert node_ids(search(retriever, "annual leave").hits) == ["a"]


def test_a_retry_after_a_failure_embeds_again(fused: Composite, embedded: Embedded) -> None:
    model = FakeEmbedding(fail=ConnectionError("no model"))
    leg = Leg("leg", embedded(model), retries=2, backoff_s=0.001)
    with pytest.raises(TooFewLegsError):
        fused(leg).retrieve("annual leave")
    assert len(model.calls) == 3


def test_a_late_leg_does_not_take_the_embedding_from_the_others(
    fused: Composite, embedded: Embedded, search: Search
) -> None:
    model = FakeEmbedding(delay_s=0.3)
    late = Leg("late", fused(embedded(model, name="late")), timeout_s=0.03)
    result = search(fused(late, fused(embedded(model, name="a"))), "annual leave")
    assert node_ids(result.hits) == ["a"]
    assert "late" in [part.where for part in result.degraded]


def test_a_leg_that_waits_and_is_late_does_not_take_the_embedding_from_the_others(
    fused: Composite, embedded: Embedded, search: Search
) -> None:
    model = FakeEmbedding(delay_s=0.3)
    late = Leg("late", embedded(model, name="late"), timeout_s=0.03)
    inner = fused(late, FakeRetriever([("b", 0.5)]))  # ends, and cancels its late leg, first
    result = search(fused(embedded(model, name="a"), inner), "annual leave")
    assert node_ids(result.hits) == ["a", "b"]
    assert model.calls == ["annual leave"]


def test_a_foreign_leg_that_blocks_the_loop_does_not_wait_for_it(
    fused: Composite, embedded: Embedded
) -> None:
    model = FakeEmbedding(delay_s=0.02)
    child = embedded(model, name="b")

    class BlocksTheLoop(FakeRetriever):
        async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return child.retrieve(query_bundle)  # as LlamaIndex's base class does

    retriever = fused(embedded(model, name="a"), BlocksTheLoop())
    hits = asyncio.run(asyncio.wait_for(retriever.aretrieve("annual leave"), 5))
    assert node_ids(hits) == ["a", "b"]


def test_outside_an_answer_it_embeds_all_the_same() -> None:
    model = FakeEmbedding(dim=4)
    assert next(iter(embed(Query("leave"), model))) is not None  # a plan, driven by hand
    assert run(embed(Query("leave"), model)) == model.get_query_embedding("leave")


def index_over(model: FakeEmbedding) -> VectorStoreIndex:
    return VectorStoreIndex(nodes=sample_nodes(model), embed_model=model)


def test_f8_vector_retrievers_of_llama_index_share_one_embedding_a_text(
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


def test_f9_an_embedding_never_reaches_a_vector_retriever_of_another_model(
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


def test_a_vector_retriever_that_a_user_changed_embeds_for_itself(
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
