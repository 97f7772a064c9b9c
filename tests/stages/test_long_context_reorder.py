"""`LongContextReorder`: the best hits where a language model looks."""

import re

import pytest
from llama_index.core.postprocessor import SimilarityPostprocessor

from llama_retrieval_ext.errors import CompositionError
from llama_retrieval_ext.pipeline.pipeline import Pipeline
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.selection import LongContextReorder, Top
from llama_retrieval_ext.testing.fakes import FakeRetriever, FixedRetriever
from tests.cases import each_case


@each_case(
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


def test_nothing_stands_behind_it() -> None:
    reorder, source = LongContextReorder(), FixedRetriever([("a", 0.9)], name="a")
    advice = re.escape("put it last: Top(k=5) >> LongContextReorder()")
    with pytest.raises(CompositionError, match=advice):
        reorder >> Top(5)
    with pytest.raises(CompositionError, match=advice):
        source >> reorder >> Top(5)
    with pytest.raises(CompositionError, match=re.escape("Top(k=9) >> Top(k=5) >> Long")):
        source >> (Top(9) >> reorder) >> Top(5)
    with pytest.raises(CompositionError, match=advice):
        RRF() >> reorder >> Top(5)
    with pytest.raises(CompositionError, match=advice):
        Pipeline(source, refines=[reorder, Top(5)])
    with pytest.raises(CompositionError, match=advice):
        Pipeline(source, refines=[reorder], name="named") >> Top(5)
    with pytest.raises(CompositionError, match="put it last"):
        source >> reorder >> SimilarityPostprocessor(similarity_cutoff=0.5)
    with pytest.raises(CompositionError, match="put it last"):
        RetrievalPipeline("built").add_stage(source).add_stage(reorder).add_stage(Top(5))


def test_once_is_enough() -> None:
    with pytest.raises(CompositionError, match=re.escape("write LongContextReorder() once")):
        LongContextReorder() >> LongContextReorder()


def test_what_it_leaves_is_not_fused() -> None:
    reordered = FixedRetriever([("a", 0.9)], name="a") >> LongContextReorder()
    with pytest.raises(CompositionError, match="behind the fusion") as caught:
        (reordered | FixedRetriever(name="b")) >> RRF()
    assert str(caught.value).endswith("(a | b) >> RRF() >> LongContextReorder()")
