"""Pipelines that do not fit: type checkers find an error in each line that is marked, or say so."""
# ruff: noqa: PGH003, PLR0915, PLR0917 - a list of lines, not a function
# mypy: disable-error-code="ignore-without-code"
# pyright: reportUnnecessaryTypeIgnoreComment=true

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor

import llama_retrieval_ext
from llama_retrieval_ext import HybridRetreiver  # type: ignore
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
    _ = a >> b  # type: ignore
    _ = a >> (a | b)  # type: ignore
    _ = a >> RRF()  # type: ignore
    _ = a >> (RRF() >> Top(3))  # type: ignore
    _ = a >> rewrite  # type: ignore
    _ = a >> fan_out  # type: ignore
    _ = a >> theirs  # type: ignore
    _ = theirs >> a  # type: ignore
    _ = theirs >> RRF()  # type: ignore
    _ = (a | b) >> Top(3)  # type: ignore
    _ = (a | b) >> postprocessor  # type: ignore
    _ = (a | b) >> a  # type: ignore
    _ = (a | b) >> rewrite  # type: ignore
    _ = (a | b) >> fan_out  # type: ignore
    _ = branches(a, b) >> Top(3)  # type: ignore
    _ = RRF() >> a  # type: ignore
    _ = RRF() >> (a | b)  # type: ignore
    _ = RRF() >> RRF()  # type: ignore
    _ = RRF() >> rewrite  # type: ignore
    _ = RRF() >> Top(3) >> a  # type: ignore
    _ = Top(3) >> a  # type: ignore
    _ = Top(3) >> (a | b)  # type: ignore
    _ = Top(3) >> RRF()  # type: ignore
    _ = Top(3) >> rewrite  # type: ignore
    _ = postprocessor >> a  # type: ignore
    _ = postprocessor >> RRF()  # type: ignore
    _ = rewrite >> Top(3)  # type: ignore
    _ = rewrite >> RRF()  # type: ignore
    _ = rewrite >> postprocessor  # type: ignore
    _ = rewrite >> leg  # type: ignore
    _ = leg >> Top(3)  # type: ignore
    _ = fan_out >> Top(3)  # type: ignore
    _ = fan_out >> RRF()  # type: ignore
    _ = fan_out >> rewrite  # type: ignore
    _ = fan_out >> fan_out  # type: ignore
    _ = fan_out >> (fan_out >> a)  # type: ignore
    _ = fan_out >> (rewrite >> (a | b))  # type: ignore
    _ = (fan_out >> a) | b  # type: ignore
    _ = a | (fan_out >> b)  # type: ignore
    _ = theirs | (fan_out >> b)  # type: ignore
    _ = (rewrite >> (a | b)) | a  # type: ignore
    _ = (a | b) | (fan_out >> a)  # type: ignore
    _ = a | Top(3)  # type: ignore
    _ = a | RRF()  # type: ignore
    _ = RRF() | a  # type: ignore
    _ = rewrite | a  # type: ignore
    _ = (a | b) | RRF()  # type: ignore
    _ = a >> 3  # type: ignore
    _ = a >> str.upper  # type: ignore
    _ = a >> Top  # type: ignore
    _ = str.upper >> a  # type: ignore
    _ = a | "b"  # type: ignore
    retriever: BaseRetriever = a | b  # type: ignore
    pipeline: Pipeline = RRF() >> Top(3)  # type: ignore
    fused: FusionRetriever = fan_out >> a  # type: ignore
    del retriever, pipeline, fused
    FusionRetriever(a, RRF())  # type: ignore
    Pipeline(a | b)  # type: ignore
    Pipeline(a, refines=[RRF()])  # type: ignore


def misspelled() -> None:
    """A public name that there is not."""
    llama_retrieval_ext.Tpo(3)  # type: ignore
    HybridRetreiver("embedded::memory:")
