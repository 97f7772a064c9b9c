"""Stages that drop or reorder hits: Dedupe, Collapse, Threshold, LongContextReorder."""

import asyncio
import math
import re
from typing import Any, get_args

import pytest
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import (
    ImageNode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from llama_retrieval_ext import RRF, Hit, Query
from llama_retrieval_ext.errors import CompositionError, ConfigurationError, ScoreError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.hits import as_hit, node_ids
from llama_retrieval_ext.pipeline.pipeline import Pipeline
from llama_retrieval_ext.stages.selection import (
    Alike,
    Collapse,
    Dedupe,
    LongContextReorder,
    Threshold,
    Top,
)
from llama_retrieval_ext.testing.fakes import FakeRetriever, FixedRetriever, Row
from tests.cases import cases

LONG = "Every employee has twenty-five days of annual leave and five carry over to March"
ANY = Query("q")
NEARLY: list[Row] = [("a", 0.9, LONG), ("b", 0.8, f"{LONG} please"), ("c", 0.7, "sick leave")]
TWO_OF_FOUR_WORDS: list[Row] = [("a", 0.9, "one two three"), ("b", 0.8, "one two four")]


def kept(stage: Dedupe, *rows: Row) -> list[str]:
    pipeline = FakeRetriever(rows) >> stage
    found = node_ids(pipeline.retrieve("q"))
    assert node_ids(asyncio.run(pipeline.aretrieve("q"))) == found
    return found


@cases(
    ("stage", "rows", "expected"),
    [
        (Dedupe("id"), [("a", 0.9, "same"), ("b", 0.8, "same"), ("a", 0.1)], ["a", "b"]),
        (
            Dedupe(),
            [
                ("a", 0.9, "Annual  leave\n"),
                ("b", 0.8, "annual leave"),
                ("c", 0.7, "ＡＮＮＵＡＬ leave"),  # noqa: RUF001 - full-width on purpose
                ("d", 0.6, "annual leave, too"),
            ],
            ["a", "d"],
        ),
        (Dedupe(), [("a", 0.9, "text", {"page": 1}), ("b", 0.8, "text", {"page": 2})], ["a"]),
        (Dedupe("nearly"), NEARLY, ["a", "c"]),
        (Dedupe("nearly", at_least=1.0), NEARLY, ["a", "b", "c"]),
        (Dedupe("nearly", at_least=0.5), TWO_OF_FOUR_WORDS, ["a"]),
        (Dedupe("nearly", at_least=0.51), TWO_OF_FOUR_WORDS, ["a", "b"]),
        (
            Dedupe("nearly"),
            [
                ("a", 0.9, "员工每年享有二十五天年假，其中五天可以结转至次年三月。"),  # noqa: RUF001
                ("b", 0.8, "员工每年享有二十五天年假，其中五天可以结转至次年三月！"),  # noqa: RUF001
                ("c", 0.7, "施工单位应当为员工提供安全帽。"),
            ],
            ["a", "c"],
        ),
    ],
)
def test_dedupe_keeps_the_best_of_equal_hits(
    stage: Dedupe, rows: list[Row], expected: list[str]
) -> None:
    assert kept(stage, *rows) == expected


@cases("by", get_args(Alike))
def test_dedupe_keeps_hits_without_text(by: Alike) -> None:
    images = [
        as_hit(NodeWithScore(node=ImageNode(id_=id_, image_url=f"https://x/{id_}"), score=0.5))
        for id_ in "ab"
    ]
    assert node_ids(run(Dedupe(by).refine_plan(ANY, images))) == ["a", "b"]


@cases("wrong", [{"by": "same"}, {"at_least": 0.0}, {"at_least": 1.1}, {"at_least": "1"}])
def test_dedupe_refuses_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Dedupe(**wrong)


def hit_of(node_id: str, document: str | None = None, **metadata: Any) -> Hit:
    node = TextNode(id_=node_id, text="...", metadata=metadata)
    if document is not None:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
    return Hit(node=node, score=1.0)


RANKING = [
    hit_of("a1", "a"),
    hit_of("a2", "a"),
    hit_of("b1", "b"),
    hit_of("a3", "a"),
    hit_of("b2", "b"),
]


@cases(
    ("size", "kept"),
    [(1, ["a1", "b1"]), (2, ["a1", "a2", "b1", "b2"]), (3, ["a1", "a2", "b1", "a3", "b2"])],
)
def test_the_best_hits_of_each_document_stay_in_their_order(size: int, kept: list[str]) -> None:
    assert node_ids(Collapse(size).refine(ANY, RANKING)) == kept


def test_hits_without_a_document_are_never_collapsed() -> None:
    assert node_ids(Collapse().refine(ANY, [hit_of("a"), hit_of("b"), hit_of("a1", "a")])) == [
        "a",
        "b",
        "a1",
    ]


def test_the_same_document_id_in_another_scope_is_another_document() -> None:
    hits = [
        hit_of("1", "policy", tenant_id="acme"),
        hit_of("2", "policy", tenant_id="globex"),
        hit_of("3", "policy", tenant_id="acme", kb_id="it"),
        hit_of("4", "policy"),
        hit_of("5", "policy", tenant_id="acme"),
        hit_of("6", "policy", tenant_id=["no", "scope"]),
    ]
    assert node_ids(Collapse().refine(ANY, hits)) == ["1", "2", "3", "4"]


def test_collapse_can_group_by_a_metadata_field() -> None:
    hits = [hit_of("1", "d", by="Li"), hit_of("2", "d", by="Wu"), hit_of("3", "e", by="Li")]
    assert node_ids(Collapse(by="by").refine(ANY, hits)) == ["1", "2"]


def test_equal_numbers_are_one_group_and_their_digits_as_text_another() -> None:
    hits = [hit_of("1", year=2024), hit_of("2", year=2024.0), hit_of("3", year="2024")]
    assert node_ids(Collapse(by="year").refine(ANY, hits)) == ["1", "3"]


@cases("odd", [None, True, [1], {}, math.nan])
def test_field_values_other_than_strings_and_numbers_are_never_collapsed(odd: object) -> None:
    hits = [hit_of("1", field=odd), hit_of("2", field=odd), hit_of("3")]
    assert node_ids(Collapse(by="field").refine(ANY, hits)) == ["1", "2", "3"]


def test_a_collapse_size_below_one_and_an_empty_field_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="size must be a whole number of at least 1"):
        Collapse(0)
    with pytest.raises(ConfigurationError, match="to go by source leave it out"):
        Collapse(by="")


def test_a_score_equal_to_the_threshold_stays() -> None:
    source = FakeRetriever([("a", 0.9), ("b", 0.5), ("c", 0.4999), ("d", -1.0)])
    assert node_ids((source >> Threshold(0.5)).retrieve("q")) == ["a", "b"]


def test_threshold_refuses_a_hit_without_a_score() -> None:
    with pytest.raises(ScoreError, match="'b' has the score None"):
        (FakeRetriever([("a", 0.9), ("b", None)]) >> Threshold(0.0)).retrieve("q")


@cases("floor", [math.nan, math.inf])
def test_threshold_refuses_an_infinite_min_score(floor: float) -> None:
    with pytest.raises(ConfigurationError, match="min_score"):
        Threshold(floor)


@cases(
    ("best_first", "reordered"),
    [("", ""), ("1", "1"), ("12", "12"), ("123", "132"), ("1234", "1342"), ("12345", "13542")],
)
def test_reordering_puts_the_best_hits_at_both_ends(best_first: str, reordered: str) -> None:
    source = FakeRetriever([(id_, 1.0 / int(id_)) for id_ in best_first])
    assert node_ids((source >> LongContextReorder()).retrieve("q")) == list(reordered)


def test_a_smaller_top_k_keeps_the_best_hits_before_the_reordering() -> None:
    source = FakeRetriever([(id_, 1.0 / int(id_)) for id_ in "12345"])
    found = (source >> LongContextReorder()).retrieve(Query("q", top_k=3))
    assert node_ids(found) == ["1", "3", "2"]


def test_a_stage_after_long_context_reorder_is_refused() -> None:
    reorder, source = LongContextReorder(), FixedRetriever([("a", 0.9)], name="a")
    advice = re.escape("put it last: Top(k=5) >> LongContextReorder()")
    with pytest.raises(CompositionError, match=advice):
        reorder >> Top(5)
    with pytest.raises(CompositionError, match=re.escape("Top(k=9) >> Top(k=5) >> Long")):
        source >> (Top(9) >> reorder) >> Top(5)
    with pytest.raises(CompositionError, match=re.escape("write LongContextReorder() once")):
        reorder >> LongContextReorder()
    with pytest.raises(CompositionError, match=advice):
        RRF() >> reorder >> Top(5)
    with pytest.raises(CompositionError, match=advice):
        Pipeline(source, refines=[reorder], name="named") >> Top(5)
    with pytest.raises(CompositionError, match="put it last"):
        source >> reorder >> SimilarityPostprocessor(similarity_cutoff=0.5)


def test_a_reordered_leg_of_a_fusion_is_refused() -> None:
    reordered = FixedRetriever([("a", 0.9)], name="a") >> LongContextReorder()
    with pytest.raises(CompositionError, match="behind the fusion") as caught:
        (reordered | FixedRetriever(name="b")) >> RRF()
    assert str(caught.value).endswith("(a | b) >> RRF() >> LongContextReorder()")
