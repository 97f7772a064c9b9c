"""Pipelines that fit: no type checker objects to any line."""
# ruff: noqa: PLR0915, PLR0917 - a list of lines, not a function

from collections.abc import Sequence
from typing import assert_type

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor

import llama_retrieval_ext
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.pipeline.branches import Branches, Unfused, branches
from llama_retrieval_ext.pipeline.chains import FusionChain
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import FanOut, Refine, Rewrite
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stages.selection import Top


def right(
    a: Retriever,
    b: Retriever,
    leg: Leg,
    theirs: BaseRetriever,
    postprocessor: BaseNodePostprocessor,
    rewrite: Rewrite,
    fan_out: FanOut,
) -> None:
    """Every operator that fits, with the type of what it makes."""
    assert_type(a | b, Branches)
    assert_type(a | theirs, Branches)
    assert_type(theirs | a, Branches)
    assert_type(leg | a | b, Branches)
    assert_type(a | (b | leg), Branches)
    assert_type(branches(theirs, theirs, named=leg), Branches)
    assert_type((a | b) >> RRF(), FusionRetriever)
    assert_type((a | b) >> (RRF() >> Top(3)), Pipeline)
    assert_type((a | b) >> WeightedSum() >> Top(3), Pipeline)
    assert_type(RRF() >> Top(3) >> postprocessor, FusionChain)
    assert_type(a >> Top(3), Pipeline)
    assert_type(a >> postprocessor >> Top(3), Pipeline)
    assert_type(theirs >> Top(3), Pipeline)
    assert_type(Top(3) >> Top(2), Refine)
    assert_type(postprocessor >> Top(3), Refine)
    assert_type(rewrite >> rewrite, Rewrite)
    assert_type(rewrite >> fan_out, FanOut)
    assert_type(rewrite >> a, Retriever)
    assert_type(rewrite >> theirs, Retriever)
    assert_type(rewrite >> (a | b), Unfused)
    assert_type(rewrite >> (a | b) >> RRF() >> Top(3), Pipeline)
    assert_type(fan_out >> a, Unfused)
    assert_type(fan_out >> leg, Unfused)
    assert_type(rewrite >> (fan_out >> (a | b)), Unfused)
    assert_type(a | (fan_out >> b) >> RRF(), Branches)
    assert_type(fan_out >> (theirs | b) >> RRF(), FusionRetriever)
    assert_type(((a | b) >> RRF() >> Top(9) | a) >> RRF(), FusionRetriever)
    assert_type(llama_retrieval_ext.Top(3), Top)
    llama_index: BaseRetriever = (a | b) >> RRF() >> Top(3)
    del llama_index


def own_stages(a: Retriever, b: Retriever) -> None:
    """Functions behind a retriever, and stages that return values."""

    class Mine(Refine):
        def refine(self, query: Query, hits: Sequence[Hit]) -> Sequence[Hit]:
            return hits

    class Shout(Rewrite):
        def rewrite(self, query: Query) -> str:
            return query.query_str.upper()

    def laws(query: Query, hits: Sequence[Hit]) -> list[Hit]:
        return [hit for hit in hits if query.query_str in hit.text]

    assert_type(a >> laws, Pipeline)
    assert_type(a >> laws >> (lambda hits: hits[:3]) >> Top(3), Pipeline)
    assert_type(laws >> Top(3), Refine)
    assert_type((a | b) >> RRF() >> laws, Pipeline)
    assert_type(RRF() >> laws, FusionChain)
    assert_type(Shout() >> a, Retriever)
    assert_type(a >> Mine(), Pipeline)
