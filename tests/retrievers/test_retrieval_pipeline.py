"""A pipeline built stage by stage is the pipeline that the operators give."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from llama_index.core.postprocessor import SimilarityPostprocessor

from llama_retrieval_ext import RRF, Hit, Query, Refine, Rewrite, Scope, Top
from llama_retrieval_ext.errors import ArgumentError, CompositionError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import RetrievalPipeline
from llama_retrieval_ext.testing import FakeRetriever, FixedRetriever
from tests.cases import cases

OURS, THEIRS = {"tenant_id": "acme"}, {"tenant_id": "globex"}
a = FixedRetriever([("a", 0.9, "a", OURS), ("x", 0.5, "x", THEIRS)], name="a")
b = FixedRetriever([("x", 0.9, "x", THEIRS), ("b", 0.5, "b", OURS)], name="b")


@dataclass(frozen=True, slots=True)
class Shout(Rewrite):
    def rewrite(self, query: Query) -> Query:
        return Query(query.query_str.upper(), scope=query.scope)


def built() -> RetrievalPipeline:
    stages = (Shout(), a | b, RRF(), Top(2))
    pipeline = RetrievalPipeline("built")
    for stage in stages:
        pipeline = pipeline.add_stage(stage)
    return pipeline


def test_a_pipeline_of_added_stages_equals_the_operators() -> None:
    expression = Shout() >> (a | b) >> RRF() >> Top(2)
    pipeline = built()
    assert repr(pipeline) == (
        "RetrievalPipeline(name='built').add_stage(Shout()).add_stage((a | b)).add_stage(RRF())"
        ".add_stage(Top(k=2))"
    )
    assert node_ids(pipeline.retrieve("query")) == node_ids(expression.retrieve("query"))
    assert node_ids(asyncio.run(pipeline.aretrieve("query"))) == ["x", "a"]
    assert a.calls[-1].query_str == "QUERY"
    assert pipeline.outline().startswith("RetrievalPipeline(name='built')\n└─ Top(k=2)")


def test_add_stage_adds_to_the_pipeline_and_returns_it() -> None:
    pipeline = RetrievalPipeline()
    assert pipeline.name == "default"
    assert pipeline.add_stage(a) is pipeline
    pipeline.add_stage(Top(1))
    assert pipeline.stages == (a, Top(1))
    assert node_ids(pipeline.retrieve("query")) == ["a"]


def test_a_copy_for_a_scope_has_its_own_stages() -> None:
    pipeline = RetrievalPipeline().add_stage(a)
    copy = pipeline.for_scope(Scope("acme")).add_stage(Top(1))
    assert pipeline.stages == (a,)
    assert copy.stages == (a, Top(1))


@dataclass(frozen=True, slots=True)
class FromContext(Refine):
    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        return [hit for hit in hits if hit.node_id == query.context["only"]]


@cases("is_async", [False, True])
def test_execute_searches_with_top_k_and_context(is_async: bool) -> None:
    pipeline = RetrievalPipeline().add_stage(a | b).add_stage(RRF())

    def search(*arguments: Any, **options: Any) -> list[Hit]:
        if is_async:
            return asyncio.run(pipeline.aexecute(*arguments, **options)).hits
        return pipeline.execute(*arguments, **options).hits

    assert node_ids(search("query")) == ["x", "a", "b"]
    assert node_ids(search("query", 1)) == ["x"]
    pipeline.add_stage(FromContext())
    assert node_ids(search("query", top_k=10, context={"only": "b"})) == ["b"]


def test_a_wrong_argument_of_execute_is_an_argument_error() -> None:
    with pytest.raises(ArgumentError, match="write top_k=3"):
        RetrievalPipeline().add_stage(a).execute("query", topk=3)  # type: ignore[call-arg]


def test_llama_index_parts_are_stages_of_a_pipeline() -> None:
    pipeline = RetrievalPipeline("p").add_stage(FakeRetriever([("x", 0.9), ("y", 0.1)]))
    cut = pipeline.add_stage(SimilarityPostprocessor(similarity_cutoff=0.5))
    assert node_ids(cut.retrieve("query")) == ["x"]


def test_the_scope_of_a_built_pipeline_reaches_its_legs() -> None:
    assert node_ids(built().for_scope(Scope("acme")).retrieve("query")) == ["a", "b"]


def test_a_stage_that_does_not_fit_is_refused_with_what_to_write_instead() -> None:
    with pytest.raises(CompositionError, match=r"put a Fusion between them: \(a \| b\) >> RRF"):
        RetrievalPipeline("p").add_stage(a | b).add_stage(Top(1))


@cases("stages", [(), (a | b,)])
def test_a_pipeline_without_a_retriever_says_what_it_needs(stages: tuple[object, ...]) -> None:
    pipeline = RetrievalPipeline("p")
    for stage in stages:
        pipeline = pipeline.add_stage(stage)
    with pytest.raises(CompositionError, match="it needs a retriever"):
        pipeline.retrieve("query")
