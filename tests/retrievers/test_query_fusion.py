"""`QueryFusionRetriever`: LlamaIndex's documented behaviour, and what LlamaIndex's gets wrong."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import product
from typing import Any

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.llms import MockLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.retrievers import QueryFusionRetriever as LlamaIndexFusion
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext import RRF, WeightedSum
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution import Leg
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import QueryFusionRetriever
from llama_retrieval_ext.testing import FakeRetriever, FixedRetriever, ScriptedLLM
from tests.cases import cases
from tests.retrievers.references import finding
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


@cases(
    ("fusion", "mode", "use_async"),
    product(
        [LlamaIndexFusion, QueryFusionRetriever],
        [*FUSION_MODES, "simple", "reciprocal_rerank"],
        [False, True],
    ),
)
def test_the_arguments_of_llama_indexs_fusion_work_unchanged(
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
        callback_manager=(manager := CallbackManager()),
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
    assert retriever.callback_manager is manager
    found = node_ids(retriever.retrieve("query"))
    if mode == FUSION_MODES.RECIPROCAL_RANK:  # b and d tie; only ours says how ties are broken
        assert found[:2] == expected[:2]
    else:
        assert found == expected
    assert sorted(node_ids(asyncio.run(retriever.aretrieve("query")))) == sorted(found)


@both
def test_the_default_mode_is_simple_with_two_hits(fusion: type[LlamaIndexFusion]) -> None:
    retriever = fusion(two(), llm=MockLLM(), num_queries=1)
    assert scores(retriever.retrieve("query")) == {"a": 0.9, "c": 0.8}


# Ranks of its reciprocal ranks begin at 0, ours at 1 as in the paper.
@cases("mode", [mode for mode in FUSION_MODES if mode != FUSION_MODES.RECIPROCAL_RANK])
def test_scores_are_those_of_llama_indexs_fusion(mode: FUSION_MODES) -> None:
    rows = (
        [("a", 0.9), ("b", 0.7), ("c", 0.65), ("d", -0.2)],
        [("d", 0.4)],
        [("b", 0.3), ("e", 0.1)],
    )
    ours, theirs = (
        fusion(
            [FakeRetriever(row) for row in rows],
            llm=MockLLM(),
            mode=mode,
            retriever_weights=None if mode == FUSION_MODES.SIMPLE else [3, 1, 1],
            num_queries=1,
            similarity_top_k=9,
            use_async=False,
        )
        for fusion in (QueryFusionRetriever, LlamaIndexFusion)
    )
    assert scores(ours.retrieve("query")) == pytest.approx(scores(theirs.retrieve("query")))


@both
def test_the_query_and_those_of_the_llm_are_searched(fusion: type[LlamaIndexFusion]) -> None:
    llm = ScriptedLLM(["days off\nholiday entitlement"])
    child = FakeRetriever([("a", 0.9)])
    retriever = fusion([child], llm=llm, num_queries=3, use_async=False)
    retriever.retrieve("annual leave")
    queries = {call.query_str for call in child.calls}
    assert queries == {"annual leave", "days off", "holiday entitlement"}


@both
def test_the_fusion_prompt_takes_the_query_and_the_number(fusion: type[LlamaIndexFusion]) -> None:
    llm = ScriptedLLM(["days off"])
    prompt = "Write {num_queries} queries like: {query}"
    fusion(
        [FakeRetriever()], llm=llm, num_queries=2, query_gen_prompt=prompt, use_async=False
    ).retrieve("annual leave")
    assert llm.prompts == ["Write 1 queries like: annual leave"]


@both
def test_the_fusion_prompt_can_be_read_and_updated(fusion: type[LlamaIndexFusion]) -> None:
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
    named = IndexNode(id_="door", text="door", index_id="section", obj=section)
    for options in ({"object_map": {"section": section}}, {"objects": [named]}):
        retriever = fusion([finding(door)], llm=MockLLM(), num_queries=1, **options)
        assert node_ids(retriever.retrieve("query")) == ["section"]


# --- what LlamaIndex's gets wrong ----------------------------------------------------------------


def test_async_retrieval_calls_the_async_method_of_the_llm() -> None:
    class AsyncOnly(ScriptedLLM):
        def complete(self, *args: object, **kwargs: object) -> None:  # type: ignore[override]
            raise AssertionError("the blocking way was taken")

    child = FakeRetriever([("a", 0.9)])
    llm = AsyncOnly(["days off"])  # type: ignore[call-arg, arg-type]  # as ScriptedLLM
    asyncio.run(QueryFusionRetriever([child], llm=llm, num_queries=2).aretrieve("annual leave"))
    assert {call.query_str for call in child.calls} == {"annual leave", "days off"}


@cases("mode", FUSION_MODES)
def test_weights_count_in_every_mode_by_position_and_by_name(
    mode: FUSION_MODES, searched: Searched
) -> None:
    legs = {
        "one": FixedRetriever([("a", 0.9), ("b", 0.8)]),
        "two": FixedRetriever([("b", 0.9), ("a", 0.8)]),
    }
    for weights, best in (((0.99, 0.01), "a"), ((0.01, 0.99), "b")):
        by_name = dict(zip(legs, weights, strict=True))
        for retrievers, options in (
            (list(legs.values()), weights),
            (legs, weights),
            (legs, by_name),
            ([Leg(name, leg) for name, leg in legs.items()], by_name),
            ({name: Leg(name, leg, weight=by_name[name]) for name, leg in legs.items()}, None),
        ):
            fusion = QueryFusionRetriever(
                retrievers, mode=mode, num_queries=1, retriever_weights=options
            )
            assert searched(fusion, "query").hits[0].node.node_id == best


def test_legs_by_name_keep_top_k_and_required(searched: Searched) -> None:
    own, must = FixedRetriever([("a", 0.9)]), FixedRetriever(error=ConnectionError("down"))
    fusion = QueryFusionRetriever(
        {"own": Leg("x", own, top_k=50), "must": Leg("y", must, required=True)}, num_queries=1
    )
    assert [leg.name for leg in fusion.legs] == ["own", "must"]
    with pytest.raises(ConnectionError, match="down"):
        searched(fusion, "query")
    assert [call.top_k for call in own.calls] == [50]


@cases("mode", FUSION_MODES)
def test_hits_without_a_score_are_found_with_a_share_of_zero(
    mode: FUSION_MODES, searched: Searched
) -> None:
    children = [FakeRetriever([("a", 0.9), ("none", None)]), FakeRetriever([("also", None)])]
    fusion = QueryFusionRetriever(children, mode=mode, num_queries=1, similarity_top_k=9)
    result = searched(fusion, "query")
    assert set(node_ids(result.hits)) == {"a", "none", "also"}
    if mode != FUSION_MODES.RECIPROCAL_RANK:
        assert scores(result.hits)["none"] == 0.0
        assert result.hits[0].node.node_id == "a"


class FusionMode(Enum):
    """The modes of another design."""

    RECIPROCAL_RANK = "reciprocal_rank"


@cases(
    ("mode", "ours"),
    [
        ("reciprocal_rank", "reciprocal_rerank"),
        (FusionMode.RECIPROCAL_RANK, "reciprocal_rerank"),
        ("rrf", "reciprocal_rerank"),
        ("relative", "relative_score"),
        ("dbsf", "dist_based_score"),
    ],
)
def test_another_name_of_a_mode_is_refused_with_llama_indexs_name(mode: Any, ours: str) -> None:
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


def test_one_query_needs_no_llm(searched: Searched) -> None:
    fusion = QueryFusionRetriever([FakeRetriever([("a", 0.9)])], num_queries=1)
    assert node_ids(searched(fusion, "query").hits) == ["a"]
    with pytest.raises(ConfigurationError, match="num_queries=4 needs llm="):
        QueryFusionRetriever([FakeRetriever()])


def test_fusion_arguments_that_cannot_work_are_refused_at_construction() -> None:
    child = FakeRetriever()
    for options, problem in (
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
            QueryFusionRetriever([child], **{"num_queries": 1, **options})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at least one retriever"):
        QueryFusionRetriever([], num_queries=1)
    with pytest.raises(TypeError, match="at least one retriever"):
        QueryFusionRetriever({}, num_queries=1)


def test_the_mode_can_be_a_fusion_stage(searched: Searched) -> None:
    fusion = QueryFusionRetriever(two(), mode=RRF(k=1), num_queries=1)
    assert searched(fusion, "query").hits[0].score == pytest.approx(1 / 2 + 1 / 4)
    votes = QueryFusionRetriever(two(), mode=WeightedSum(), num_queries=1)
    assert node_ids(searched(votes, "query").hits) == ["a", "c"]


def test_a_verbose_fusion_logs_the_number_of_hits(caplog: pytest.LogCaptureFixture) -> None:
    fusion = QueryFusionRetriever(two(), num_queries=1, verbose=True)
    with caplog.at_level(logging.INFO):
        fusion.retrieve("annual leave")
    assert caplog.messages == ["fusion found 2 hits for 'annual leave'"]


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
