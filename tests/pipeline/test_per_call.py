"""What a call says holds for that call alone, and `explain` takes what `search` takes."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.retrievers.store_retriever import VectorRetriever
from llama_retrieval_ext.stages.rerank.rules import RuleRerank
from llama_retrieval_ext.stages.selection import Dedupe, Top
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.testing.fake_backend import FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from llama_retrieval_ext.trace import Trace

Explain = Callable[..., SearchResult]


def vector() -> VectorRetriever:
    model = FakeEmbedding()
    return VectorRetriever(FakeBackend(sample_nodes(model)), embed_model=model)


def of_tenant(tenant: str) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key="tenant_id", value=tenant)])


def test_b3_filters_of_calls_at_the_same_time_never_mix() -> None:
    retriever = vector()

    def tenants(number: int) -> tuple[str, set[str], int]:
        tenant = ("acme", "globex")[number % 2]
        top_k = 1 + number % 3
        hits = retriever.retrieve(Query("leave", filters=of_tenant(tenant), top_k=top_k))
        return tenant, {hit.node.metadata["tenant_id"] for hit in hits}, top_k - len(hits)

    with ThreadPoolExecutor(8) as threads:
        for tenant, seen, missing in threads.map(tenants, range(200)):
            assert seen == {tenant}
            assert missing == 0
    assert retriever.filters is None


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
    told = {trace.name: trace.notes.get("top")}
    for child in trace.children:
        told |= top_of(child)
    return told


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


def test_stages_within_a_reranker_note_their_hits_too(explained: Explain) -> None:
    chain = RuleRerank() >> Dedupe() >> Top(2)
    told = top_of(explained(RerankRetriever(vector(), chain), "annual leave").trace)
    assert {repr(RuleRerank()), repr(Dedupe()), repr(Top(2))} <= told.keys()
    assert all(told.values()) or told.pop("embedding") is None


def test_a_search_counts_the_hits_of_every_step_and_notes_none() -> None:
    result = (vector() >> RuleRerank() >> Top(2)).search("leave")
    assert result.trace is not None
    assert all(child.count for child in result.trace.children)
    assert result.trace.children[-1].count == 2
    assert set(top_of(result.trace).values()) == {None}
