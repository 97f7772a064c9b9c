"""Retrievers side by side, which wait for a fusion."""

import pytest

from llama_retrieval_ext import RRF, branches
from llama_retrieval_ext.errors import CompositionError
from llama_retrieval_ext.execution import Leg
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever
from llama_retrieval_ext.testing import FixedRetriever
from tests.cases import cases

a, b, c = (FixedRetriever([(name, 1.0)], name=name) for name in "abc")


def test_a_leg_keeps_its_limits_in_a_fusion() -> None:
    slow = Leg("slow", c, timeout_s=1.0, weight=0.5, top_k=2, required=True)
    made = (slow | a) >> RRF()
    assert isinstance(made, FusionRetriever)
    assert made.legs[0] is slow
    assert [leg.name for leg in made.legs] == ["slow", "a"]


def test_repeated_names_of_legs_are_numbered() -> None:
    made = branches(a, a, Leg("a", b), a=c)
    assert [leg.name for leg in made.legs] == ["a", "a#2", "a#3", "a#4"]
    assert [leg.retriever for leg in made.legs] == [a, a, b, c]


def test_a_keyword_of_branches_renames_a_leg_and_keeps_its_limits() -> None:
    limited = Leg("first", a, timeout_s=2.0)
    made = branches(dense=limited, bm25=b)
    assert [leg.name for leg in made.legs] == ["dense", "bm25"]
    assert [leg.timeout_s for leg in made.legs] == [2.0, None]
    assert made.legs[0].breaker is limited.breaker


def test_branches_without_a_retriever_are_refused() -> None:
    with pytest.raises(CompositionError, match="at least one"):
        branches()


@cases("method", ["search", "retrieve_many"])
def test_retriever_methods_of_branches_ask_for_a_fusion(method: str) -> None:
    with pytest.raises(AttributeError, match=rf"\(\(a \| b\) >> RRF\(\)\)\.{method}"):
        getattr(a | b, method)
