"""`Dedupe`: the best of those that are the same."""

import asyncio
from typing import Any, get_args

import pytest
from llama_index.core.schema import ImageNode, NodeWithScore

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import as_hit, node_ids
from llama_retrieval_ext.stages.selection import Alike, Dedupe
from llama_retrieval_ext.testing.fakes import FakeRetriever, Row

LONG = "Every employee has twenty-five days of annual leave and five carry over to March"


def kept(stage: Dedupe, *rows: Row) -> list[str]:
    pipeline = FakeRetriever(rows) >> stage
    found = node_ids(pipeline.retrieve("q"))
    assert node_ids(asyncio.run(pipeline.aretrieve("q"))) == found
    return found


def test_by_id_the_better_of_two_hits_of_a_node_stays() -> None:
    hits = [as_hit(hit) for hit in FakeRetriever([("a", 0.9), ("b", 0.8), ("a", 0.1)]).hits]
    found = run(Dedupe("id").refine_plan(Query("q"), hits))
    assert [(hit.node_id, hit.score) for hit in found] == [("a", 0.9), ("b", 0.8)]


def test_by_id_the_same_text_under_two_ids_is_two_hits() -> None:
    assert kept(Dedupe("id"), ("a", 0.9, "same"), ("b", 0.8, "same")) == ["a", "b"]


def test_by_content_case_space_and_unicode_form_do_not_matter() -> None:
    rows: list[Row] = [
        ("a", 0.9, "Annual  leave\n"),
        ("b", 0.8, "annual leave"),
        ("c", 0.7, "ＡＮＮＵＡＬ leave"),  # noqa: RUF001 - full-width on purpose
        ("d", 0.6, "annual leave, too"),
    ]
    assert kept(Dedupe(), *rows) == ["a", "d"]


def test_by_content_metadata_does_not_matter() -> None:
    rows: list[Row] = [("a", 0.9, "text", {"page": 1}), ("b", 0.8, "text", {"page": 2})]
    assert kept(Dedupe(), *rows) == ["a"]


@pytest.mark.parametrize("by", get_args(Alike))
def test_hits_without_text_do_not_repeat_each_other(by: Alike) -> None:
    images = [
        as_hit(NodeWithScore(node=ImageNode(id_=id_, image_url=f"https://x/{id_}"), score=0.5))
        for id_ in "ab"
    ]
    assert node_ids(run(Dedupe(by).refine_plan(Query("q"), images))) == ["a", "b"]


def test_nearly_the_same_words_are_the_same() -> None:
    rows: list[Row] = [("a", 0.9, LONG), ("b", 0.8, f"{LONG} please"), ("c", 0.7, "sick leave")]
    assert kept(Dedupe("nearly"), *rows) == ["a", "c"]
    assert kept(Dedupe("nearly", at_least=1.0), *rows) == ["a", "b", "c"]


def test_nearly_is_exactly_from_the_given_share_on() -> None:
    rows: list[Row] = [("a", 0.9, "one two three"), ("b", 0.8, "one two four")]  # 2 of 4 words
    assert kept(Dedupe("nearly", at_least=0.5), *rows) == ["a"]
    assert kept(Dedupe("nearly", at_least=0.51), *rows) == ["a", "b"]


def test_chinese_is_compared_by_pairs_of_characters() -> None:
    rows: list[Row] = [
        ("a", 0.9, "员工每年享有二十五天年假，其中五天可以结转至次年三月。"),  # noqa: RUF001
        ("b", 0.8, "员工每年享有二十五天年假，其中五天可以结转至次年三月！"),  # noqa: RUF001
        ("c", 0.7, "施工单位应当为员工提供安全帽。"),
    ]
    assert kept(Dedupe("nearly"), *rows) == ["a", "c"]


@pytest.mark.parametrize("wrong", [{"by": "same"}, {"at_least": 0.0}, {"at_least": 1.1}])
def test_bad_arguments_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Dedupe(**wrong)


def test_its_representation_is_its_expression() -> None:
    stage = Dedupe("nearly", at_least=0.8)
    assert eval(repr(stage)) == stage
