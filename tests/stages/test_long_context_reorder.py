"""`LongContextReorder`: the best hits where a language model looks."""

import pytest

from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import node_ids
from llama_retrieval_ext.stages.long_context_reorder import LongContextReorder
from llama_retrieval_ext.testing.fake_retrievers import FakeRetriever


@pytest.mark.parametrize(
    ("best_first", "reordered"),
    [("", ""), ("1", "1"), ("12", "12"), ("123", "132"), ("1234", "1342"), ("12345", "13542")],
)
def test_the_best_stand_at_both_ends(best_first: str, reordered: str) -> None:
    source = FakeRetriever([(id_, 1.0 / int(id_)) for id_ in best_first])
    assert node_ids((source >> LongContextReorder()).retrieve("q")) == list(reordered)


def test_the_best_are_returned_when_fewer_are_wanted() -> None:
    source = FakeRetriever([(id_, 1.0 / int(id_)) for id_ in "12345"])
    found = (source >> LongContextReorder()).retrieve(Query("q", top_k=3))
    assert node_ids(found) == ["1", "3", "2"]


def test_scores_stay_with_their_hits() -> None:
    source = FakeRetriever([("a", 0.9), ("b", 0.8), ("c", 0.7)])
    found = (source >> LongContextReorder()).retrieve("q")
    assert [(hit.node_id, hit.score) for hit in found] == [("a", 0.9), ("c", 0.7), ("b", 0.8)]


def test_its_representation_is_its_expression() -> None:
    assert eval(repr(LongContextReorder())) == LongContextReorder()
