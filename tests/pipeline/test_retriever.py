"""The settings of retrievers and of single calls, and what `explain` notes."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.results import SearchResult
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.retrievers.single_search import VectorRetriever
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rerank.rules import RuleRerank
from llama_retrieval_ext.stages.selection import Dedupe, Top
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.testing.fake_backend import FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever, FixedRetriever
from llama_retrieval_ext.trace import Trace
from tests.pipeline.parts import Each, Say


def test_hits_without_scores_get_scores_in_their_order() -> None:
    unscored = FakeRetriever([("b", None), ("a", None), ("c", None)])
    hits = (unscored >> Top(2)).retrieve("query")
    assert node_ids(hits) == ["b", "a"]
    assert all(isinstance(hit.score, float) for hit in hits)


@pytest.mark.parametrize("scope", [None, "acme", {"tenant_id": "acme"}])
def test_for_scope_refuses_anything_but_a_scope(scope: Any) -> None:
    retriever = FixedRetriever([("a", 0.9)])
    with pytest.raises(ConfigurationError, match="write Scope"):
        retriever.for_scope(scope)


EN = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])


ROWS = [
    ("a-en", 0.9, "text", {"tenant_id": "acme", "lang": "en"}),
    ("a-zh", 0.8, "text", {"tenant_id": "acme", "lang": "zh"}),
    ("g-en", 0.7, "text", {"tenant_id": "globex", "lang": "en"}),
]


tenants = FixedRetriever(ROWS, name="tenants")


SETTINGS: Mapping[str, tuple[Callable[[], Retriever], list[str]]] = {
    "a scope": (lambda: (tenants >> Top(9)).for_scope(Scope("globex")), ["g-en"]),
    "filters": (lambda: Pipeline(tenants, filters=EN), ["a-en", "g-en"]),
    "a limit": (lambda: Pipeline(tenants, top_k=1), ["a-en"]),
    "a scope of a fusion": (
        lambda: ((tenants | tenants) >> RRF()).for_scope(Scope("globex")),
        ["g-en"],
    ),
    "filters of a fusion": (
        lambda: FusionRetriever(tenants | tenants, RRF(), filters=EN),
        ["a-en", "g-en"],
    ),
    "a limit of a fusion": (lambda: FusionRetriever(tenants | tenants, RRF(), top_k=1), ["a-en"]),
}


@pytest.mark.parametrize(("make", "expected"), SETTINGS.values(), ids=SETTINGS)
def test_scope_filters_and_top_k_of_a_retriever_hold_in_every_composition(
    make: Callable[[], Retriever], expected: list[str]
) -> None:
    bound = make()
    for composed in (
        bound,
        bound >> Top(9),
        Say() >> bound,
        Say() >> bound >> Top(9),
        Say() >> (bound >> Top(9)),
        (bound | bound) >> RRF(),
        Each(("x", "y")) >> bound >> RRF() >> Top(9),
    ):
        assert node_ids(composed.retrieve("query")) == expected


def test_a_retriever_that_requires_a_scope_still_does_in_a_pipeline() -> None:
    closed = FixedRetriever([("a", 1.0)]) >> Top(3)
    closed.requires_scope = True
    with pytest.raises(PermissionError):
        (closed >> Top(2)).retrieve("query")


Explain = Callable[..., SearchResult]


def vector() -> VectorRetriever:
    model = FakeEmbedding()
    return VectorRetriever(FakeBackend(sample_nodes(model)), embed_model=model)


def of_tenant(tenant: str) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key="tenant_id", value=tenant)])


def explain(retriever: Retriever, query: str, **options: object) -> SearchResult:
    return retriever.explain(query, **options)  # type: ignore[arg-type]


def aexplain(retriever: Retriever, query: str, **options: object) -> SearchResult:
    return asyncio.run(retriever.aexplain(query, **options))  # type: ignore[arg-type]


@pytest.fixture(params=[explain, aexplain])
def explained(request: pytest.FixtureRequest) -> Explain:
    way: Explain = request.param
    return way


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 1},
        {"scope": ACME},
        {"filters": of_tenant("globex")},
        {"timeout_s": 60, "context": {"user": "u"}},
    ],
    ids=str,
)
def test_explain_takes_the_arguments_of_search(
    explained: Explain, options: dict[str, object]
) -> None:
    retriever = vector()
    expected = retriever.search("leave", **options).hits  # type: ignore[arg-type]
    assert expected
    assert explained(retriever, "leave", **options).hits == expected


def top_of(trace: Trace | None) -> dict[str, object]:
    assert trace is not None
    tops = {trace.name: trace.notes.get("top")}
    for child in trace.children:
        tops |= top_of(child)
    return tops


def test_an_explanation_notes_the_best_hits_of_every_refinement(explained: Explain) -> None:
    found = FakeRetriever([("a", 0.9, "sick leave"), ("b", 0.8, "annual leave"), ("c", 0.1, "x")])
    rules, top = RuleRerank(), Top(2)
    result = explained(found >> rules >> top, "annual leave")
    assert top_of(result.trace) == {
        "pipeline": ["b", "a"],
        "FakeRetriever": ["a", "b", "c"],
        repr(rules): ["b", "a", "c"],
        repr(top): ["b", "a"],
    }


def test_an_explanation_notes_the_hits_of_stages_within_a_reranker(explained: Explain) -> None:
    chain = RuleRerank() >> Dedupe() >> Top(2)
    tops = top_of(explained(RerankRetriever(vector(), chain), "annual leave").trace)
    assert {repr(RuleRerank()), repr(Dedupe()), repr(Top(2))} <= tops.keys()
    assert all(tops.values()) or tops.pop("embedding") is None
