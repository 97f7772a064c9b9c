"""Pipelines that do not fit: every line marked so is an error, and no other."""
# ruff: noqa: PLR0915, PLR0917 - a list of lines, not a function

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor

import llama_retrieval_ext
from llama_retrieval_ext import HybridRetreiver  # wrong
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import FanOut, Rewrite
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.selection import Top


def wrong(
    a: Retriever,
    b: Retriever,
    leg: Leg,
    theirs: BaseRetriever,
    postprocessor: BaseNodePostprocessor,
    rewrite: Rewrite,
    fan_out: FanOut,
) -> None:
    """One wrong operator a line."""
    _ = a >> b  # wrong
    _ = a >> (a | b)  # wrong
    _ = a >> RRF()  # wrong
    _ = a >> (RRF() >> Top(3))  # wrong
    _ = a >> rewrite  # wrong
    _ = a >> fan_out  # wrong
    _ = a >> theirs  # wrong
    _ = theirs >> a  # wrong
    _ = theirs >> RRF()  # wrong
    _ = (a | b) >> Top(3)  # wrong
    _ = (a | b) >> postprocessor  # wrong
    _ = (a | b) >> a  # wrong
    _ = (a | b) >> rewrite  # wrong
    _ = (a | b) >> fan_out  # wrong
    _ = branches(a, b) >> Top(3)  # wrong
    _ = RRF() >> a  # wrong
    _ = RRF() >> (a | b)  # wrong
    _ = RRF() >> RRF()  # wrong
    _ = RRF() >> rewrite  # wrong
    _ = RRF() >> Top(3) >> a  # wrong
    _ = Top(3) >> a  # wrong
    _ = Top(3) >> (a | b)  # wrong
    _ = Top(3) >> RRF()  # wrong
    _ = Top(3) >> rewrite  # wrong
    _ = postprocessor >> a  # wrong
    _ = postprocessor >> RRF()  # wrong
    _ = rewrite >> Top(3)  # wrong
    _ = rewrite >> RRF()  # wrong
    _ = rewrite >> postprocessor  # wrong
    _ = rewrite >> leg  # wrong
    _ = leg >> Top(3)  # wrong
    _ = fan_out >> Top(3)  # wrong
    _ = fan_out >> RRF()  # wrong
    _ = fan_out >> rewrite  # wrong
    _ = fan_out >> fan_out  # wrong
    _ = fan_out >> (fan_out >> a)  # wrong
    _ = fan_out >> (rewrite >> (a | b))  # wrong
    _ = (fan_out >> a) | b  # wrong
    _ = a | (fan_out >> b)  # wrong
    _ = theirs | (fan_out >> b)  # wrong
    _ = (rewrite >> (a | b)) | a  # wrong
    _ = (a | b) | (fan_out >> a)  # wrong
    _ = a | Top(3)  # wrong
    _ = a | RRF()  # wrong
    _ = RRF() | a  # wrong
    _ = rewrite | a  # wrong
    _ = (a | b) | RRF()  # wrong
    _ = a >> 3  # wrong
    _ = a >> str.upper  # wrong
    _ = a >> Top  # wrong
    _ = str.upper >> a  # wrong
    _ = a | "b"  # wrong
    retriever: BaseRetriever = a | b  # wrong
    pipeline: Pipeline = RRF() >> Top(3)  # wrong
    fused: FusionRetriever = fan_out >> a  # wrong
    del retriever, pipeline, fused
    FusionRetriever(a, RRF())  # wrong
    Pipeline(a | b)  # wrong
    Pipeline(a, refines=[RRF()])  # wrong


def misspelled() -> None:
    """A public name that there is not."""
    llama_retrieval_ext.Tpo(3)  # wrong
    HybridRetreiver("embedded::memory:")
