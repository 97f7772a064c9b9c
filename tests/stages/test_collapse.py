"""A few hits of each document."""

import math
from typing import Any

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.results import Hit, node_ids
from llama_retrieval_ext.stages.selection import Collapse


def hit(node_id: str, document: str | None = None, **metadata: Any) -> Hit:
    node = TextNode(id_=node_id, text="...", metadata=metadata)
    if document is not None:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
    return Hit(node=node, score=1.0)


RANKING = [hit("a1", "a"), hit("a2", "a"), hit("b1", "b"), hit("a3", "a"), hit("b2", "b")]


@pytest.mark.parametrize(
    ("size", "kept"),
    [(1, ["a1", "b1"]), (2, ["a1", "a2", "b1", "b2"]), (3, ["a1", "a2", "b1", "a3", "b2"])],
)
def test_the_best_of_each_document_stay_in_their_order(size: int, kept: list[str]) -> None:
    assert node_ids(Collapse(size).of(RANKING)) == kept


def test_what_has_no_document_stays_and_is_no_document_of_others() -> None:
    assert node_ids(Collapse().of([hit("a"), hit("b"), hit("a1", "a")])) == ["a", "b", "a1"]


def test_the_same_id_in_another_scope_is_another_document() -> None:
    hits = [
        hit("1", "policy", tenant_id="acme"),
        hit("2", "policy", tenant_id="globex"),
        hit("3", "policy", tenant_id="acme", kb_id="it"),
        hit("4", "policy"),
        hit("5", "policy", tenant_id="acme"),
        hit("6", "policy", tenant_id=["no", "scope"]),
    ]
    assert node_ids(Collapse().of(hits)) == ["1", "2", "3", "4"]


def test_it_can_go_by_a_field() -> None:
    hits = [hit("1", "d", by="Li"), hit("2", "d", by="Wu"), hit("3", "e", by="Li")]
    assert node_ids(Collapse(by="by").of(hits)) == ["1", "2"]


def test_numbers_that_are_equal_are_one_value_and_their_digits_another() -> None:
    hits = [hit("1", year=2024), hit("2", year=2024.0), hit("3", year="2024")]
    assert node_ids(Collapse(by="year").of(hits)) == ["1", "3"]


@pytest.mark.parametrize("odd", [None, True, [1], {}, math.nan])
def test_what_is_no_string_or_number_is_like_nothing_else(odd: object) -> None:
    hits = [hit("1", field=odd), hit("2", field=odd), hit("3")]
    assert node_ids(Collapse(by="field").of(hits)) == ["1", "2", "3"]


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_a_size_that_is_no_number_of_hits_is_refused(size: Any) -> None:
    with pytest.raises(ConfigurationError, match="size must be a whole number of at least 1"):
        Collapse(size)


def test_an_empty_field_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="to go by source leave it out"):
        Collapse(by="")
