"""`QueryFusionRetriever`: LlamaIndex's documented behaviour, and what LlamaIndex's gets wrong."""

import asyncio
import logging
import statistics
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.llms import MockLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.retrievers import QueryFusionRetriever as LlamaIndexFusion
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext.errors import ConfigurationError, TooFewLegsError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.query_fusion import QueryFusionRetriever
from llama_retrieval_ext.retrievers.store_retriever import VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.testing.fake_backend import FakeBackend
from llama_retrieval_ext.testing.fakes import (
    FakeEmbedding,
    FakeRetriever,
    FixedRetriever,
    HangingRetriever,
)
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.cases import each_case
from tests.meeting import Meeting, Meets, MeetsAsync
from tests.searching import Searched

Fresh = Callable[[], list[BaseRetriever]]


def two() -> list[BaseRetriever]:
    """Fresh ones: LlamaIndex's fusion changes the hits of its children."""
    return [
        FakeRetriever([("a", 0.9), ("b", 0.5), ("c", 0.1)]),
        FakeRetriever([("c", 0.8), ("d", 0.7), ("a", 0.2)]),
    ]


def scores(hits: Sequence[NodeWithScore]) -> dict[str, float | None]:
    return {hit.node.node_id: hit.score for hit in hits}


# --- what LlamaIndex documents, checked on both classes -----------------------------------------

both = pytest.mark.parametrize("fusion", [LlamaIndexFusion, QueryFusionRetriever])


@both
@each_case("use_async", [False, True])
@each_case("mode", [*FUSION_MODES, "simple", "reciprocal_rerank"])
def test_changing_the_import_is_enough(
    fusion: type[LlamaIndexFusion], mode: FUSION_MODES, use_async: bool
) -> None:
    retriever = fusion(
        two(),
        llm=MockLLM(),
        query_gen_prompt=None,
        mode=mode,
        similarity_top_k=3,
        num_queries=1,
        use_async=use_async,
        verbose=False,
        callback_manager=CallbackManager(),
        objects=None,
        object_map=None,
        retriever_weights=None,
    )
    expected = {
        "simple": ["a", "c", "d"],
        "reciprocal_rerank": ["a", "c", "b"],
        "relative_score": ["a", "c", "d"],
        "dist_based_score": ["a", "c", "d"],
    }[getattr(mode, "value", mode)]
    found = node_ids(retriever.retrieve("query"))
    if mode == FUSION_MODES.RECIPROCAL_RANK:  # b and d tie; only ours says how ties are broken
        assert found[:2] == expected[:2]
    else:
        assert found == expected
    assert sorted(node_ids(asyncio.run(retriever.aretrieve("query")))) == sorted(found)


@both
def test_simple_keeps_the_best_score_of_a_node(fusion: type[LlamaIndexFusion]) -> None:
    retriever = fusion(two(), llm=MockLLM(), num_queries=1, similarity_top_k=9)
    assert scores(retriever.retrieve("query")) == {"a": 0.9, "c": 0.8, "d": 0.7, "b": 0.5}


@both
def test_the_mode_is_simple_and_two_hits_come_back_unless_told(
    fusion: type[LlamaIndexFusion],
) -> None:
    retriever = fusion(two(), llm=MockLLM(), num_queries=1)
    assert scores(retriever.retrieve("query")) == {"a": 0.9, "c": 0.8}


@both
def test_relative_scores_are_weighted_sums_of_min_max_scores(
    fusion: type[LlamaIndexFusion],
) -> None:
    retriever = fusion(
        two(),
        llm=MockLLM(),
        mode=FUSION_MODES.RELATIVE_SCORE,
        retriever_weights=[3, 1],
        num_queries=1,
        similarity_top_k=9,
        use_async=False,
    )
    assert scores(retriever.retrieve("query")) == pytest.approx(
        {"a": 0.75, "b": 0.375, "c": 0.25, "d": 0.25 * 0.5 / 0.6}
    )


@both
def test_distribution_based_scores_are_llama_indexs(fusion: type[LlamaIndexFusion]) -> None:
    far = FakeRetriever([("a", 0.9), ("b", 0.7), ("c", 0.65), ("d", -0.2)])
    retriever = fusion(
        [far, FakeRetriever([("d", 0.4)])],
        llm=MockLLM(),
        mode=FUSION_MODES.DIST_BASED_SCORE,
        num_queries=1,
        similarity_top_k=9,
        use_async=False,
    )
    values = [0.9, 0.7, 0.65, -0.2]
    mean, sigma = statistics.fmean(values), statistics.pstdev(values)
    parts = [0.5 * (0.5 + (value - mean) / (6 * sigma)) for value in values]
    parts[-1] += 0.5  # the only hit of its leg
    assert scores(retriever.retrieve("query")) == pytest.approx(
        dict(zip("abcd", parts, strict=True))
    )


@both
def test_the_llm_writes_the_other_queries_and_all_are_asked(fusion: type[LlamaIndexFusion]) -> None:
    llm = ScriptedLLM(["days off\nholiday entitlement"])
    child = FakeRetriever([("a", 0.9)])
    retriever = fusion([child], llm=llm, num_queries=3, use_async=False)
    retriever.retrieve("annual leave")
    asked = {call.query_str for call in child.calls}
    assert asked == {"annual leave", "days off", "holiday entitlement"}


@both
def test_the_prompt_takes_the_query_and_the_number(fusion: type[LlamaIndexFusion]) -> None:
    llm = ScriptedLLM(["days off"])
    prompt = "Write {num_queries} queries like: {query}"
    fusion(
        [FakeRetriever()], llm=llm, num_queries=2, query_gen_prompt=prompt, use_async=False
    ).retrieve("annual leave")
    assert llm.prompts == ["Write 1 queries like: annual leave"]


@both
def test_the_prompt_can_be_seen_and_changed(fusion: type[LlamaIndexFusion]) -> None:
    llm = ScriptedLLM(["days off"])
    retriever = fusion([FakeRetriever()], llm=llm, num_queries=2, use_async=False)
    assert "{query}" in retriever.get_prompts()["query_gen_prompt"].get_template()
    retriever.update_prompts({"query_gen_prompt": PromptTemplate("Say {query} otherwise")})
    assert retriever.query_gen_prompt == "Say {query} otherwise"
    retriever.retrieve("annual leave")
    assert llm.prompts == ["Say annual leave otherwise"]


@both
def test_index_nodes_in_the_result_are_followed(fusion: type[LlamaIndexFusion]) -> None:
    door = IndexNode(id_="door", text="door", index_id="section")
    section = TextNode(id_="section", text="the whole section")

    class Doors(FakeRetriever):
        def _answer(self) -> list[NodeWithScore]:
            return [NodeWithScore(node=door, score=0.5)]

    retriever = fusion([Doors()], llm=MockLLM(), num_queries=1, object_map={"section": section})
    assert scores(retriever.retrieve("query")) == {"section": 0.5}
    named = IndexNode(id_="door", text="door", index_id="section", obj=section)
    retriever = fusion([Doors()], llm=MockLLM(), num_queries=1, objects=[named])
    assert scores(retriever.retrieve("query")) == {"section": 0.5}


# --- what LlamaIndex's gets wrong ----------------------------------------------------------------


def test_async_retrieval_asks_the_llm_asynchronously() -> None:
    class AsyncOnly(ScriptedLLM):
        def complete(self, *args: object, **kwargs: object) -> None:  # type: ignore[override]
            raise AssertionError("the blocking way was taken")

    child = FakeRetriever([("a", 0.9)])
    llm = AsyncOnly(["days off"])  # type: ignore[call-arg, arg-type]  # as ScriptedLLM
    asyncio.run(QueryFusionRetriever([child], llm=llm, num_queries=2).aretrieve("annual leave"))
    assert {call.query_str for call in child.calls} == {"annual leave", "days off"}


@each_case("mode", FUSION_MODES)
def test_f1_children_that_reuse_their_objects_get_the_same_answer_again(
    mode: FUSION_MODES, searched: Searched
) -> None:
    children = two()
    fusion = QueryFusionRetriever(children, mode=mode, num_queries=1, similarity_top_k=9)
    first = scores(searched(fusion, "query").hits)
    for _ in range(2):
        assert scores(searched(fusion, "query").hits) == first
    assert [scores(child.retrieve("query")) for child in children] == [
        scores(child.retrieve("query")) for child in two()
    ]


@each_case("mode", FUSION_MODES)
def test_f2_weights_count_in_every_mode_by_position_and_by_name(
    mode: FUSION_MODES, searched: Searched
) -> None:
    legs = {
        "one": FixedRetriever([("a", 0.9), ("b", 0.8)]),
        "two": FixedRetriever([("b", 0.9), ("a", 0.8)]),
    }
    for weights, best in (((0.99, 0.01), "a"), ((0.01, 0.99), "b")):
        by_name = dict(zip(legs, weights, strict=True))
        for retrievers, given in (
            (list(legs.values()), weights),
            (legs, weights),
            (legs, by_name),
            ([Leg(name, leg) for name, leg in legs.items()], by_name),
            ({name: Leg(name, leg, weight=by_name[name]) for name, leg in legs.items()}, None),
        ):
            fusion = QueryFusionRetriever(
                retrievers, mode=mode, num_queries=1, retriever_weights=given
            )
            assert searched(fusion, "query").hits[0].node.node_id == best


def test_f3_distinct_nodes_with_the_same_text_stay_two(searched: Searched) -> None:
    child = FakeRetriever([("p1", 0.9, "same text"), ("p2", 0.8, "same text")])
    fusion = QueryFusionRetriever([child], num_queries=1, similarity_top_k=4)
    assert node_ids(searched(fusion, "query").hits) == ["p1", "p2"]


def test_f4_a_child_that_fails_or_hangs_does_not_take_the_query_down(searched: Searched) -> None:
    hanging = HangingRetriever()
    fusion = QueryFusionRetriever(
        {
            "good": FixedRetriever([("a", 0.9)]),
            "broken": FixedRetriever(error=ConnectionError("down")),
            "hanging": Leg("any", hanging, timeout_s=0.05),
        },
        num_queries=1,
    )
    try:
        result = searched(fusion, "query")
    finally:
        hanging.release()
    assert node_ids(result.hits) == ["a"]
    assert {part.where for part in result.degraded} == {"broken", "hanging"}


def test_f4_legs_by_name_have_their_own_limits(searched: Searched) -> None:
    own, must = FixedRetriever([("a", 0.9)]), FixedRetriever(error=ConnectionError("down"))
    fusion = QueryFusionRetriever(
        {"own": Leg("x", own, top_k=50), "must": Leg("y", must, required=True)}, num_queries=1
    )
    assert [leg.name for leg in fusion.legs] == ["own", "must"]
    with pytest.raises(ConnectionError, match="down"):
        searched(fusion, "query")
    assert [call.top_k for call in own.calls] == [50]


def test_f4_so_many_legs_must_answer(searched: Searched) -> None:
    legs = {"a": FixedRetriever([("a", 1.0)]), "b": FixedRetriever(error=OSError("down"))}
    with pytest.raises(TooFewLegsError):
        searched(QueryFusionRetriever(legs, num_queries=1, min_success=2), "query")


def test_f5_the_error_of_a_child_is_told_as_it_is(searched: Searched) -> None:
    fusion = QueryFusionRetriever(
        [FixedRetriever(error=RuntimeError("backend down"))], num_queries=1
    )
    with pytest.raises(TooFewLegsError, match="RuntimeError: backend down"):
        searched(fusion, "query")


@pytest.mark.parametrize("use_async", [False, True])
def test_f6_sync_retrieval_takes_the_sync_way_of_its_children(use_async: bool) -> None:
    class SyncOnly(FakeRetriever):
        async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            raise AssertionError("the store has no async client")

    fusion = QueryFusionRetriever([SyncOnly([("a", 0.9)])], num_queries=1, use_async=use_async)
    assert node_ids(fusion.retrieve("query")) == ["a"]


def test_f7_children_are_asked_side_by_side(searched: Searched) -> None:
    for kind in (Meets, MeetsAsync):
        meeting = Meeting(3)
        children: list[BaseRetriever] = [kind([(id_, 0.9)], meeting) for id_ in "abc"]
        fusion = QueryFusionRetriever(children, num_queries=1, similarity_top_k=3)
        result = searched(fusion, "query")
        assert node_ids(result.hits) == ["a", "b", "c"]


def vectors(model: FakeEmbedding) -> VectorRetriever:
    texts = {"a": "annual leave", "b": "sick leave", "c": "canteen"}
    nodes = [
        TextNode(id_=id_, text=text, embedding=model.get_text_embedding(text))
        for id_, text in texts.items()
    ]
    model.calls.clear()
    return VectorRetriever(FakeBackend(nodes), embed_model=model)


def test_f8_each_wording_is_embedded_once_for_all_children(searched: Searched) -> None:
    model = FakeEmbedding()
    fusion = QueryFusionRetriever(
        [vectors(model), vectors(model), vectors(model)],
        llm=ScriptedLLM(["1. days off\n2. holiday\n3. vacation"]),
        num_queries=4,
    )
    searched(fusion, "annual leave")
    assert sorted(model.calls) == ["annual leave", "days off", "holiday", "vacation"]


def test_f9_children_with_other_models_get_their_own_embedding(searched: Searched) -> None:
    models = FakeEmbedding(dim=8), FakeEmbedding(dim=64, seed=1), FakeEmbedding(dim=8, seed=2)
    fusion = QueryFusionRetriever([vectors(model) for model in models], num_queries=1)
    query = QueryBundle("annual leave")
    result = searched(fusion, query)
    assert result.degraded == ()
    assert result.hits[0].node.node_id == "a"
    assert query.embedding is None
    assert [model.calls for model in models] == [["annual leave"]] * 3


@each_case("mode", FUSION_MODES)
def test_f10_hits_without_a_score_count_as_found_with_nothing_to_add(
    mode: FUSION_MODES, searched: Searched
) -> None:
    children = [FakeRetriever([("a", 0.9), ("none", None)]), FakeRetriever([("also", None)])]
    fusion = QueryFusionRetriever(children, mode=mode, num_queries=1, similarity_top_k=9)
    result = searched(fusion, "query")
    assert set(node_ids(result.hits)) == {"a", "none", "also"}
    if mode != FUSION_MODES.RECIPROCAL_RANK:
        assert scores(result.hits)["none"] == 0.0
        assert result.hits[0].node.node_id == "a"


@each_case(("score", "expected"), [(0.4, 0.5), (0.0, 0.0)])
def test_equal_relative_scores_are_1_if_above_0_and_else_0(score: float, expected: float) -> None:
    legs = [FakeRetriever([("a", score), ("b", score)]), FakeRetriever()]
    fusion = QueryFusionRetriever(legs, mode=FUSION_MODES.RELATIVE_SCORE, num_queries=1)
    assert [hit.score for hit in fusion.retrieve("query")] == [expected, expected]


class FusionMode(Enum):
    """The modes of another design."""

    RECIPROCAL_RANK = "reciprocal_rank"


@each_case(
    ("mode", "ours"),
    [
        ("reciprocal_rank", "reciprocal_rerank"),
        (FusionMode.RECIPROCAL_RANK, "reciprocal_rerank"),
        ("rrf", "reciprocal_rerank"),
        ("relative", "relative_score"),
        ("dbsf", "dist_based_score"),
    ],
)
def test_another_name_of_a_mode_is_answered_with_llama_indexs(mode: Any, ours: str) -> None:
    with pytest.raises(ConfigurationError, match=f"write mode={ours!r}"):
        QueryFusionRetriever([FakeRetriever()], mode=mode, num_queries=1)


class AsyncOnly(BaseRetriever):
    """A retriever of another package without a blocking method."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        raise NotImplementedError("only async")

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        await asyncio.sleep(0)
        return [NodeWithScore(node=TextNode(id_="a"), score=0.5)]


def test_a_leg_with_only_an_async_method_works(searched: Searched) -> None:
    fusion = QueryFusionRetriever([AsyncOnly(), FakeRetriever([("b", 0.4)])], num_queries=1)
    result = searched(fusion, "query")
    assert node_ids(result.hits) == ["a", "b"]
    assert not result.degraded


def test_a_leg_with_only_an_async_method_works_inside_a_running_loop() -> None:
    fusion = QueryFusionRetriever([AsyncOnly()], num_queries=1)

    async def blocking_call() -> list[NodeWithScore]:
        return fusion.retrieve("query")

    assert node_ids(asyncio.run(blocking_call())) == ["a"]


def test_f11_scores_are_divided_by_the_queries_that_were_asked(searched: Searched) -> None:
    fusion = QueryFusionRetriever(
        [FakeRetriever([("a", 0.9), ("b", 0.5)])],
        llm=ScriptedLLM([""]),
        mode=FUSION_MODES.RELATIVE_SCORE,
        num_queries=4,
    )
    result = searched(fusion, "query")
    assert scores(result.hits) == {"a": 1.0, "b": 0.0}
    assert result.degraded


def test_f12_wordings_that_repeat_the_query_are_not_asked_again(searched: Searched) -> None:
    child = FakeRetriever([("a", 0.9)])
    llm = ScriptedLLM(["annual leave\nAnnual leave?\nannual leave"])
    searched(QueryFusionRetriever([child], llm=llm, num_queries=4), "annual leave")
    assert [call.query_str for call in child.calls] == ["annual leave"]


@each_case("said", [ConnectionError("LLM down"), "", "```\n```", (30.0, "late")])
def test_f14_when_the_llm_is_no_help_the_query_goes_on_alone(said: str, searched: Searched) -> None:
    child = FakeRetriever([("a", 0.9)])
    fusion = QueryFusionRetriever([child], llm=ScriptedLLM([said]), num_queries=4)
    result = searched(fusion, Query("annual leave", timeout_s=1))
    assert node_ids(result.hits) == ["a"]
    assert [call.query_str for call in child.calls] == ["annual leave"]
    assert len(result.degraded) == 1


def test_f14_a_prompt_may_hold_braces(searched: Searched) -> None:
    llm = ScriptedLLM(['["days off"]'])
    prompt = 'Answer like {"queries": ["..."]}. {num_queries} for: {query}'
    fusion = QueryFusionRetriever(
        [FakeRetriever()], llm=llm, num_queries=2, query_gen_prompt=prompt
    )
    searched(fusion, "annual leave")
    assert llm.prompts == ['Answer like {"queries": ["..."]}. 1 for: annual leave']


def test_f15_no_llm_is_looked_for_where_none_is_needed(searched: Searched) -> None:
    fusion = QueryFusionRetriever([FakeRetriever([("a", 0.9)])], num_queries=1)
    assert node_ids(searched(fusion, "query").hits) == ["a"]
    with pytest.raises(ConfigurationError, match="num_queries=4 needs llm="):
        QueryFusionRetriever([FakeRetriever()])


def test_f16_what_cannot_work_is_refused_at_construction() -> None:
    child = FakeRetriever()
    for given, problem in (
        ({"retriever_weights": [0.0]}, "weights are 0"),
        ({"retriever_weights": [1, 2]}, "2 weights for 1"),
        ({"retriever_weights": {"b": 1}}, "no leg"),
        ({"mode": "best"}, "no fusion mode 'best'; use one of reciprocal_rerank"),
        ({"mode": RRF(), "retriever_weights": [1]}, "give the weights to the fusion"),
        ({"similarity_top_k": 0}, "top_k"),
        ({"num_queries": 0}, "num_queries must be a whole number"),
        ({"min_success": 2}, "min_success"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            QueryFusionRetriever([child], **{"num_queries": 1, **given})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at least one retriever"):
        QueryFusionRetriever([], num_queries=1)
    with pytest.raises(TypeError, match="at least one retriever"):
        QueryFusionRetriever({}, num_queries=1)


def test_f17_reciprocal_rank_goes_by_the_order_of_the_child(searched: Searched) -> None:
    distances = FakeRetriever([("best", 0.1), ("worst", 0.9)])
    fusion = QueryFusionRetriever([distances], mode=FUSION_MODES.RECIPROCAL_RANK, num_queries=1)
    result = searched(fusion, "query")
    assert scores(result.hits) == {"best": 1 / 61, "worst": 1 / 62}


def test_f17_any_fusion_does_with_any_constant(searched: Searched) -> None:
    fusion = QueryFusionRetriever(two(), mode=RRF(k=1), num_queries=1)
    assert searched(fusion, "query").hits[0].score == pytest.approx(1 / 2 + 1 / 4)
    votes = QueryFusionRetriever(two(), mode=WeightedSum(), num_queries=1)
    assert node_ids(searched(votes, "query").hits) == ["a", "c"]


def test_f18_hits_say_which_child_gave_what(searched: Searched) -> None:
    fusion = QueryFusionRetriever(
        {"dense": two()[0], "bm25": two()[1]}, mode="reciprocal_rerank", num_queries=1
    )
    best = searched(fusion, "query").hits[0]
    assert [(part.leg, part.rank, part.score) for part in best.contributions] == [
        ("dense", 1, 0.9),
        ("bm25", 3, 0.2),
    ]


def test_f18_legs_are_asked_for_more_than_comes_back(searched: Searched) -> None:
    child = FixedRetriever([(f"n{n}", 1 - n / 100) for n in range(60)])
    fusion = QueryFusionRetriever(
        {"dense": Leg("dense", child, top_k=50)}, num_queries=1, similarity_top_k=3
    )
    result = searched(fusion, "query")
    assert len(result.hits) == 3
    assert [call.top_k for call in child.calls] == [50]


def test_the_other_wordings_stand_in_the_result(searched: Searched) -> None:
    fusion = QueryFusionRetriever(two(), llm=ScriptedLLM(["days off"]), num_queries=2)
    details = searched(fusion, "annual leave").details
    assert details == {"generated_queries": ["days off"], "queries_count": 2}


def test_verbose_tells_the_log(caplog: pytest.LogCaptureFixture) -> None:
    fusion = QueryFusionRetriever(two(), num_queries=1, verbose=True)
    with caplog.at_level(logging.INFO):
        fusion.retrieve("annual leave")
    assert caplog.messages == ["fusion found 2 hits for 'annual leave'"]


def test_it_says_what_it_is_made_of() -> None:
    fusion = QueryFusionRetriever(two(), mode=RRF(), num_queries=1)
    assert repr(fusion) == (
        "QueryFusionRetriever([FakeRetriever(...), FakeRetriever(...)], mode=RRF(), num_queries=1)"
    )
    assert fusion.outline() == "RRF()\n├─ FakeRetriever\n└─ FakeRetriever"
    assert [leg.name for leg in fusion.legs] == ["FakeRetriever", "FakeRetriever#2"]


def test_assigning_an_attribute_of_llama_index_takes_effect(searched: Searched) -> None:
    children = [FixedRetriever([("a", 0.9), ("b", 0.8)]), FixedRetriever([("b", 0.7), ("c", 0.1)])]
    fusion = QueryFusionRetriever(children, llm=ScriptedLLM(["other"]), num_queries=1)
    assert node_ids(searched(fusion, "query").hits) == ["a", "b"]
    fusion.similarity_top_k = 3
    assert node_ids(searched(fusion, "query").hits) == ["a", "b", "c"]
    fusion.mode = "reciprocal_rerank"
    assert node_ids(searched(fusion, "query").hits) == ["b", "a", "c"]
    fusion.num_queries = 2
    fusion.query_gen_prompt = "Reword {query}"
    assert len(searched(fusion, "query").details["generated_queries"]) == 1  # type: ignore[arg-type]
    assert (fusion.mode, fusion.num_queries) == ("reciprocal_rerank", 2)
    for name, value in (("similarity_top_k", 0), ("mode", "best"), ("num_queries", 0)):
        with pytest.raises(ConfigurationError):
            setattr(fusion, name, value)
    assert (fusion.similarity_top_k, fusion.mode, fusion.num_queries) == (3, "reciprocal_rerank", 2)


def test_a_callback_manager_is_taken() -> None:
    manager = CallbackManager([])
    fusion = QueryFusionRetriever([FakeRetriever()], num_queries=1, callback_manager=manager)
    assert fusion.callback_manager is manager
