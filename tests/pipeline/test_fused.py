"""Legs asked together: what fails is left out, what is shared is done once, nothing is changed."""

import asyncio
import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext.errors import (
    CompositionError,
    ConfigurationError,
    ScoreError,
    TooFewLegsError,
)
from llama_retrieval_ext.execution.legs import CircuitBreaker, Leg
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import FanOut, Refine, Rewrite
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, node_ids
from llama_retrieval_ext.retrievers.query_fusion import QueryFusionRetriever
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.retrievers.store_retriever import VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stages.selection import Top
from llama_retrieval_ext.testing.fake_backend import FakeBackend
from llama_retrieval_ext.testing.fakes import (
    FakeEmbedding,
    FakeRetriever,
    FixedRetriever,
    HangingRetriever,
)
from tests.meeting import Meeting, Meets, met_by_the_loop
from tests.searching import Searched


@dataclass(frozen=True, slots=True)
class Broken(Rewrite):
    """Fails."""

    error: Exception

    def rewrite(self, query: Query) -> Query:
        raise self.error


@dataclass(frozen=True, slots=True)
class BrokenFanOut(FanOut):
    """Fails."""

    error: Exception

    def fan_out(self, query: Query) -> list[Query]:
        raise self.error


@dataclass(frozen=True, slots=True)
class Wordings(FanOut):
    """The query in these words."""

    texts: tuple[str, ...]

    def fan_out(self, query: Query) -> list[Query]:
        return [Query(text) for text in self.texts]


@dataclass(frozen=True, slots=True)
class Shout(Rewrite):
    def rewrite(self, query: Query) -> Query:
        return Query(query.query_str.upper())


class Note(Refine):
    """Remembers the queries it saw."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        self.seen.append(query.query_str)
        return list(hits)


def good(name: str = "good") -> FixedRetriever:
    return FixedRetriever([("a", 0.9), ("b", 0.5)], name=name)


def broken(name: str = "broken") -> FixedRetriever:
    return FixedRetriever(name=name, error=ConnectionError("no route to host"))


def test_f4_a_leg_that_fails_is_left_out_and_the_answer_says_so(searched: Searched) -> None:
    result = searched((good() | broken()) >> RRF(), "query")
    assert node_ids(result.hits) == ["a", "b"]
    (missing,) = result.degraded
    assert missing.where == "broken"
    assert "no route to host" in missing.reason


def test_f4_all_legs_failing_is_an_error_that_names_each(searched: Searched) -> None:
    with pytest.raises(TooFewLegsError, match=r"0 of 2 legs.*one.*two") as caught:
        searched((broken("one") | broken("two")) >> RRF(), "query")
    assert set(caught.value.causes) == {"one", "two"}


def test_f4_a_required_leg_that_fails_fails_the_query(searched: Searched) -> None:
    with pytest.raises(ConnectionError, match="no route"):
        searched((good() | Leg("must", broken(), required=True)) >> RRF(), "query")


def test_min_success_legs_must_answer(searched: Searched) -> None:
    legs = good("one") | good("two") | broken()
    assert searched(FusionRetriever(legs, RRF(), min_success=2), "query").hits
    with pytest.raises(TooFewLegsError, match="2 of 3 legs answered, at least 3"):
        searched(FusionRetriever(legs, RRF(), min_success=3), "query")
    nothing = FusionRetriever(branches(broken()), RRF(), min_success=0)
    assert searched(nothing, "query").hits == []


def test_f4_a_leg_that_hangs_costs_its_time_and_no_more(searched: Searched) -> None:
    hanging = HangingRetriever([("late", 1.0)])
    try:
        legs = good() | Leg("hanging", hanging, timeout_s=0.05)
        result = searched(legs >> RRF(), "query")
    finally:
        hanging.release()
    assert node_ids(result.hits) == ["a", "b"]
    assert "0.05 s" in result.degraded[0].reason
    assert result.trace is not None
    assert (result.trace.duration_s or 9) < 1.0


def test_f5_the_error_of_a_leg_keeps_its_type_and_message(searched: Searched) -> None:
    down = FixedRetriever(name="down", error=RuntimeError("backend down"))
    result = searched((good() | down) >> RRF(), "query")
    assert result.degraded[0].reason == "RuntimeError: backend down"


def test_mistakes_are_not_taken_for_failures(searched: Searched) -> None:
    no_model = VectorRetriever(FakeBackend([]))
    with pytest.raises(ConfigurationError, match="embed_model"):
        searched((good() | no_model) >> RRF(), "query")
    unscored = FakeRetriever([("x", None)])
    with pytest.raises(ScoreError):
        searched((good() | unscored) >> WeightedSum(), "query")


def test_a_leg_of_weight_zero_is_not_asked(searched: Searched) -> None:
    off = broken("off")
    result = searched((good() | off) >> RRF(weights={"off": 0}), "query")
    assert off.calls == []
    assert result.degraded == ()


def test_a_leg_is_asked_for_its_own_number_of_hits(searched: Searched) -> None:
    own, more = good("own"), good("more")
    searched((own | Leg("more", more, top_k=50)) >> RRF(), Query("query", top_k=3))
    assert [call.top_k for call in own.calls] == [10]
    assert [call.top_k for call in more.calls] == [50]


def test_top_k_of_the_query_cuts_the_fused_ranking(searched: Searched) -> None:
    fused = FusionRetriever(good("one") | FixedRetriever([("c", 1.0)], name="two"), RRF(), top_k=2)
    everything = searched(fused, Query("query", top_k=3)).hits
    assert node_ids(everything) == ["a", "c", "b"]
    assert searched(fused, "query").hits == everything[:2]
    assert searched(fused, Query("query", top_k=1)).hits == everything[:1]


def test_hits_carry_what_each_leg_gave(searched: Searched) -> None:
    result = searched((good("one") | good("two")) >> RRF(), "query")
    assert [(part.leg, part.rank) for part in result.hits[0].contributions] == [
        ("one", 1),
        ("two", 1),
    ]
    assert {hit.source for hit in result.hits} == {"fusion"}


def test_f12_each_query_of_a_fan_out_is_asked_of_each_leg_once(searched: Searched) -> None:
    one, two = good("one"), good("two")
    result = searched(Wordings(("x", "y")) >> (one | two) >> RRF(), "query")
    for leg in (one, two):
        assert sorted(call.query_str for call in leg.calls) == ["x", "y"]
    legs = [part.leg for part in result.hits[0].contributions]
    assert legs == ["one[1]", "two[1]", "one[2]", "two[2]"]


def test_weights_hold_for_every_query_of_a_fan_out(searched: Searched) -> None:
    one = FixedRetriever([("a", 1.0)], name="one")
    two = FixedRetriever([("b", 1.0)], name="two")
    fused = Wordings(("x", "y")) >> (one | two) >> RRF(k=0, weights={"one": 1, "two": 3})
    result = searched(fused, "query")
    assert [(hit.node.node_id, hit.score) for hit in result.hits] == [("b", 6.0), ("a", 2.0)]


def test_f11_scores_do_not_depend_on_how_many_queries_were_asked(searched: Searched) -> None:
    legs = good("one") | good("two")
    for texts in (("x",), ("x", "y"), ("x", "y", "z")):
        result = searched(Wordings(texts) >> legs >> WeightedSum(), "query")
        assert [hit.score for hit in result.hits] == [1.0, 0.0]


def test_f14_a_fan_out_that_fails_leaves_the_query_alone(searched: Searched) -> None:
    leg = good()
    result = searched(BrokenFanOut(ValueError("nonsense")) >> leg >> RRF(), "query")
    assert node_ids(result.hits) == ["a", "b"]
    assert [call.query_str for call in leg.calls] == ["query"]
    assert [part.reason for part in result.degraded] == ["ValueError: nonsense"]


def test_a_fan_out_without_queries_leaves_the_query_alone(searched: Searched) -> None:
    leg = good()
    searched(Wordings(()) >> leg >> RRF(), "query")
    assert [call.query_str for call in leg.calls] == ["query"]


@pytest.mark.parametrize("fused", [False, True])
def test_a_rewrite_that_fails_leaves_the_query_as_it_is(searched: Searched, fused: bool) -> None:
    leg = good()
    failing = Broken(TimeoutError("late"))
    legs = (leg | good("other")) >> RRF()
    retriever = Shout() >> failing >> legs if fused else Shout() >> failing >> leg
    result = searched(retriever, "query")
    assert result.hits
    assert [call.query_str for call in leg.calls] == ["QUERY"]
    assert [part.reason for part in result.degraded] == ["TimeoutError: late"]


def test_a_rewrite_that_is_set_up_wrongly_is_an_error(searched: Searched) -> None:
    with pytest.raises(ConfigurationError, match="no model"):
        searched(Broken(ConfigurationError("no model")) >> good(), "query")


def test_refinements_see_the_query_that_was_asked(searched: Searched) -> None:
    leg, note = good(), Note()
    searched(Shout() >> leg >> note >> Top(1), "query")
    searched(Shout() >> (leg | leg) >> RRF() >> note, "query")
    assert {call.query_str for call in leg.calls} == {"QUERY"}
    assert note.seen == ["query", "query"]


def test_a_refinement_that_fails_fails_the_query(searched: Searched) -> None:
    class Strict(Refine):
        def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
            raise LookupError("not allowed to pass")

    with pytest.raises(LookupError, match="not allowed"):
        searched(good() >> Strict(), "query")


def test_the_trace_shows_every_leg_and_stage(searched: Searched) -> None:
    pipeline = Shout() >> (good("one") | broken()) >> RRF() >> Top(1)
    trace = searched(pipeline, "query").trace
    assert trace is not None
    told = trace.outline()
    assert [line.partition(":")[0].strip() for line in told.splitlines()] == [
        "pipeline",
        "fusion",
        "Shout()",
        "one",
        "broken",
        "Top(k=1)",
    ]
    assert "no route to host" in told


VECTORS = {"a": "annual leave", "b": "sick leave", "c": "canteen"}


def vectors(model: FakeEmbedding, name: str) -> VectorRetriever:
    nodes = [
        TextNode(id_=id_, text=text, embedding=model.get_text_embedding(text))
        for id_, text in VECTORS.items()
    ]
    model.calls.clear()
    return VectorRetriever(FakeBackend(nodes), embed_model=model, name=name)


def test_f8_four_queries_to_three_vector_legs_are_four_embeddings(searched: Searched) -> None:
    model = FakeEmbedding()
    legs = branches(*(vectors(model, name) for name in ("one", "two", "three")))
    fused = Wordings(("leave", "sick", "canteen", "lunch")) >> legs >> RRF()
    assert searched(fused, "leave").hits
    assert sorted(model.calls) == ["canteen", "leave", "lunch", "sick"]


def test_f9_an_embedding_does_not_reach_a_leg_with_another_model(searched: Searched) -> None:
    small, large = FakeEmbedding(dim=8), FakeEmbedding(dim=64, seed=1)
    fused = (vectors(small, "small") | vectors(large, "large")) >> RRF()
    result = searched(fused, "annual leave")
    assert result.degraded == ()
    assert result.hits[0].node.node_id == "a"
    assert [part.rank for part in result.hits[0].contributions] == [1, 1]
    # Nor does one that the caller brings: nobody knows of which model it is.
    own = Query("annual leave", embedding=small.get_query_embedding("canteen"))
    assert searched(fused, own).hits == result.hits


def test_f9_an_embedding_that_the_query_brings_is_used_where_there_is_one_model(
    searched: Searched,
) -> None:
    model = FakeEmbedding()
    fused = (vectors(model, "one") | vectors(model, "two")) >> RRF()
    own = Query("annual leave", embedding=model.get_query_embedding("canteen"))
    model.calls.clear()
    assert searched(fused, own).hits[0].node.node_id == "c"
    assert model.calls == []


def test_f9_what_a_foreign_leg_writes_into_the_query_reaches_nobody(searched: Searched) -> None:
    small, large = FakeEmbedding(dim=8), FakeEmbedding(dim=64, seed=1)
    nodes = [TextNode(id_=id_, text=text) for id_, text in VECTORS.items()]
    foreign: list[BaseRetriever] = [
        VectorStoreIndex(nodes, embed_model=model).as_retriever(similarity_top_k=3)
        for model in (small, large)
    ]
    query = QueryBundle("annual leave")
    result = searched(branches(*foreign) >> RRF(), query)
    assert result.degraded == ()
    assert result.hits[0].node.node_id == "a"
    assert query.embedding is None


def test_f1_legs_that_hand_out_the_same_objects_are_left_as_they_were(searched: Searched) -> None:
    cached = FakeRetriever([("a", 0.9), ("b", 0.5)])
    before = [(hit.node.node_id, hit.score) for hit in cached.hits]
    fused = (cached | good()) >> RRF() >> Top(2)
    first = searched(fused, "query").hits
    assert searched(fused, "query").hits == first
    assert [(hit.node.node_id, hit.score) for hit in cached.hits] == before


def test_f3_more_than_top_k_hits_are_fused_before_the_cut(searched: Searched) -> None:
    twins = [
        FakeRetriever([(f"{leg}{n}", 1 - n / 10, "same text") for n in range(3)]) for leg in "xy"
    ]
    fused = FusionRetriever(branches(*twins), RRF(), top_k=4)
    assert len(searched(fused, "query").hits) == 4


@pytest.mark.parametrize("blank", ["", " \n"])
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


def test_sync_only_foreign_legs_leave_the_event_loop_free() -> None:
    meeting = Meeting(3)
    retriever = branches(Meets([("a", 0.9)], meeting), Meets([("b", 0.9)], meeting)) >> RRF()
    result = asyncio.run(met_by_the_loop(retriever, meeting))
    assert node_ids(result.hits) == ["a", "b"]


def test_pipelines_nest_and_keep_their_own_limits(searched: Searched) -> None:
    inner = Pipeline(good(), top_k=1, name="inner")
    outer = Pipeline(inner, refines=[Top(5)], name="outer")
    result = searched(outer, "query")
    assert node_ids(result.hits) == ["a"]
    assert result.hits[0].source == "good"


def test_a_limit_inside_gives_way_to_a_query_for_more(searched: Searched) -> None:
    outer = Pipeline(Pipeline(good(), top_k=1), refines=[Top(5)])
    assert len(searched(outer, Query("query", top_k=5)).hits) == len(good().retrieve("query"))


def test_a_notebook_draws_the_shape() -> None:
    shape = (FakeRetriever([("a", 0.9)]) >> Top(1))._repr_mimebundle_()
    assert shape["text/plain"].startswith("Top(k=1)")
    assert shape["text/vnd.mermaid"].startswith("flowchart")
    assert "<svg" in shape["text/html"]


def test_min_success_counts_legs_whatever_each_is_asked(searched: Searched) -> None:
    legs = Wordings(("x", "y", "z")) >> branches(good(), broken())
    assert searched(FusionRetriever(legs, RRF(), min_success=1), "query").hits
    with pytest.raises(TooFewLegsError, match="1 of 2 legs answered, at least 2 must"):
        searched(FusionRetriever(legs, RRF(), min_success=2), "query")


class OnlyX(FakeRetriever):
    """Fails unless it is asked x."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if query_bundle.query_str != "x":
            raise ConnectionError("down")
        return self._answer()


def test_a_leg_that_answers_one_of_its_queries_has_answered(searched: Searched) -> None:
    legs = Wordings(("x", "y", "z")) >> branches(good(), OnlyX([("c", 0.9)]))
    result = searched(FusionRetriever(legs, RRF(), min_success=2), "query")
    assert "c" in node_ids(result.hits)
    assert len(result.degraded) == 2


@pytest.mark.parametrize("again", [copy.deepcopy, lambda fused: pickle.loads(pickle.dumps(fused))])
def test_a_fusion_can_be_copied_and_pickled(again: Callable[[Retriever], Retriever]) -> None:
    breaker = CircuitBreaker(failures=1, reset_s=60)
    fused = branches(Leg("down", broken("down"), breaker=breaker), good("good")) >> RRF()
    fused.retrieve("query")
    assert breaker.is_open
    copied = again(fused)
    assert node_ids(copied.retrieve("query")) == node_ids(fused.retrieve("query"))
    assert isinstance(copied, FusionRetriever)
    assert (copied.legs[0].breaker.failures, copied.legs[0].breaker.reset_s) == (1, 60)


def test_min_success_is_set_wherever_there_are_legs(searched: Searched) -> None:
    def down() -> FixedRetriever:
        return FixedRetriever(error=ConnectionError("down"), name="down")

    a, b = FixedRetriever([("a", 0.9)], name="a"), FixedRetriever([("b", 0.5)], name="b")
    made: list[Callable[[BaseRetriever], Retriever]] = [
        lambda other: branches(a, other) >> RRF(min_success=2),
        lambda other: branches(a, other) >> WeightedSum(min_success=2),
        lambda other: branches(a, other, min_success=2) >> RRF(),
        lambda other: branches(a, other, min_success=2) >> RRF() >> Top(5),
        lambda other: Shout() >> (branches(a, other, min_success=2) >> RRF()) >> Top(5),
        lambda other: Shout() >> branches(a, other) >> RRF(min_success=2),
        lambda other: QueryFusionRetriever([a, other], mode=RRF(min_success=2), num_queries=1),
        lambda other: QueryFusionRetriever([a, other], num_queries=1, min_success=2),
    ]
    for make in made:
        assert searched(make(b), "query").degraded == ()
        with pytest.raises(TooFewLegsError, match=r"1 of 2 legs answered, at least 2 must"):
            searched(make(down()), "query")
    three = (branches(a, down(), min_success=2) | down()) >> RRF()
    with pytest.raises(TooFewLegsError, match=r"1 of 3 legs answered, at least 2 must"):
        searched(three, "query")


def test_min_success_that_cannot_be_or_is_said_twice_is_refused() -> None:
    a, b = FixedRetriever(name="a"), FixedRetriever(name="b")
    wrong: list[Callable[[], object]] = [
        lambda: RRF(min_success=-1),
        lambda: WeightedSum(min_success=1.5),  # type: ignore[arg-type]
        lambda: WeightedSum(min_success=-1),
        lambda: (a | b) >> RRF(min_success=3),
        lambda: branches(a, b, min_success=3),
        lambda: branches(a, b, min_success=1) >> RRF(min_success=2),
    ]
    for make in wrong:
        with pytest.raises(ConfigurationError, match="min_success"):
            make()
    with pytest.raises(CompositionError, match="min_success is 1 here and 2 there"):
        branches(a, b, min_success=1) | branches(a, b, min_success=2)


def test_min_success_shows() -> None:
    a, b = FixedRetriever(name="a"), FixedRetriever(name="b")
    assert repr(branches(a, b, min_success=2) >> RRF()) == (
        "branches(a, b, min_success=2) >> RRF()"
    )
    assert repr((a | b) >> RRF(min_success=2)) == "(a | b) >> RRF(min_success=2)"
