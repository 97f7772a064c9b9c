"""Pipelines and fusions of retrievers."""

import asyncio
import copy
import pickle
from collections.abc import Callable

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import RRF, Query, Retriever, Top, VectorRetriever, WeightedSum, branches
from llama_retrieval_ext.errors import TooFewLegsError
from llama_retrieval_ext.execution import CircuitBreaker, Leg
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever
from llama_retrieval_ext.retrievers import RetrievalPipeline
from llama_retrieval_ext.testing import FakeBackend, FakeEmbedding, FixedRetriever
from tests.cases import cases
from tests.pipeline.parts import FanOutBy, RewriteBy, down, good, shouted
from tests.searching import Searched


def wordings(*texts: str) -> FanOutBy:
    return FanOutBy(lambda _: texts)


def test_a_leg_of_weight_zero_is_not_searched(searched: Searched) -> None:
    off = down("off")
    result = searched((good() | off) >> RRF(weights={"off": 0}), "query")
    assert off.calls == []
    assert result.degraded == ()


def test_each_query_of_a_fan_out_is_searched_once_in_each_leg(searched: Searched) -> None:
    one, two = good("one"), good("two")
    result = searched(wordings("x", "y") >> (one | two) >> RRF(), "query")
    for leg in (one, two):
        assert sorted(call.query_str for call in leg.calls) == ["x", "y"]
    legs = [part.leg for part in result.hits[0].contributions]
    assert legs == ["one[1]", "two[1]", "one[2]", "two[2]"]


def test_weights_hold_for_every_query_of_a_fan_out(searched: Searched) -> None:
    one = FixedRetriever([("a", 1.0)], name="one")
    two = FixedRetriever([("b", 1.0)], name="two")
    fused = wordings("x", "y") >> (one | two) >> RRF(k=0, weights={"one": 1, "two": 3})
    result = searched(fused, "query")
    assert [(hit.node.node_id, hit.score) for hit in result.hits] == [("b", 6.0), ("a", 2.0)]


def test_scores_do_not_depend_on_the_number_of_queries_of_a_fan_out(searched: Searched) -> None:
    legs = good("one") | good("two")
    for texts in (("x",), ("x", "y"), ("x", "y", "z")):
        result = searched(wordings(*texts) >> legs >> WeightedSum(), "query")
        assert [hit.score for hit in result.hits] == [1.0, 0.0]


def test_the_trace_shows_every_leg_and_stage(searched: Searched) -> None:
    pipeline = RewriteBy(shouted) >> (good("one") | down()) >> RRF() >> Top(1)
    trace = searched(pipeline, "query").trace
    assert trace is not None
    outline = trace.outline()
    assert [line.partition(":")[0].strip() for line in outline.splitlines()] == [
        "pipeline",
        "fusion",
        "RewriteBy(shouted)",
        "one",
        "down",
        "Top(k=1)",
    ]
    assert "no route to host" in outline


VECTORS = {"a": "annual leave", "b": "sick leave", "c": "canteen"}


def vectors(model: FakeEmbedding, name: str) -> VectorRetriever:
    nodes = [
        TextNode(id_=id_, text=text, embedding=model.get_text_embedding(text))
        for id_, text in VECTORS.items()
    ]
    model.calls.clear()
    return VectorRetriever(FakeBackend(nodes), embed_model=model, name=name)


def test_an_embedding_is_not_used_by_a_leg_with_another_model(searched: Searched) -> None:
    small, large = FakeEmbedding(dim=8), FakeEmbedding(dim=64, seed=1)
    fused = (vectors(small, "small") | vectors(large, "large")) >> RRF()
    result = searched(fused, "annual leave")
    assert result.degraded == ()
    assert result.hits[0].node.node_id == "a"
    assert [part.rank for part in result.hits[0].contributions] == [1, 1]
    # An embedding of the caller has no known model.
    own = Query("annual leave", embedding=small.get_query_embedding("canteen"))
    assert searched(fused, own).hits == result.hits


def test_an_embedding_of_the_query_is_used_where_all_legs_have_one_model(
    searched: Searched,
) -> None:
    model = FakeEmbedding()
    fused = (vectors(model, "one") | vectors(model, "two")) >> RRF()
    own = Query("annual leave", embedding=model.get_query_embedding("canteen"))
    model.calls.clear()
    assert searched(fused, own).hits[0].node.node_id == "c"
    assert model.calls == []


@cases("blank", ["", " \n"])
def test_every_search_answers_a_blank_query_with_no_hits(blank: str) -> None:
    leg = good()
    retriever = (leg | leg) >> RRF() >> Top(3)
    assert retriever.retrieve(blank) == asyncio.run(retriever.aretrieve(blank)) == []
    assert retriever.retrieve_many([blank]) == [[]]
    results = [
        retriever.search(blank),
        retriever.explain(blank),
        *retriever.search_many([blank]),
        *retriever.stream(blank),
        RetrievalPipeline().add_stage(retriever).execute(blank),
    ]
    assert [(result.hits, result.degraded) for result in results] == [([], ())] * 5
    assert leg.calls == []


def test_min_success_counts_legs_and_not_queries(searched: Searched) -> None:
    legs = wordings("x", "y", "z") >> branches(good(), down())
    assert searched(FusionRetriever(legs, RRF(), min_success=1), "query").hits
    with pytest.raises(TooFewLegsError, match="1 of 2 legs answered, at least 2 must"):
        searched(FusionRetriever(legs, RRF(), min_success=2), "query")


@cases("again", [copy.deepcopy, lambda fused: pickle.loads(pickle.dumps(fused))])
def test_a_fusion_can_be_copied_and_pickled(again: Callable[[Retriever], Retriever]) -> None:
    breaker = CircuitBreaker(failures=1, reset_s=60)
    fused = branches(Leg("down", down("down"), breaker=breaker), good("good")) >> RRF()
    fused.retrieve("query")
    assert breaker.is_open
    copied = again(fused)
    assert node_ids(copied.retrieve("query")) == node_ids(fused.retrieve("query"))
    assert isinstance(copied, FusionRetriever)
    assert (copied.legs[0].breaker.failures, copied.legs[0].breaker.reset_s) == (1, 60)
