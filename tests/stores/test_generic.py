"""Any LlamaIndex vector store behind the backend protocol, and what it may get wrong."""

import asyncio
import math
from collections.abc import Callable, Sequence

import pytest
from llama_index.core import StorageContext
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterOperator,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from pydantic import PrivateAttr

from llama_retrieval_ext import Query, Scope, VectorRetriever
from llama_retrieval_ext.errors import (
    ConfigurationError,
    ScopeViolationError,
    ScoreError,
    UnsupportedFilterError,
)
from llama_retrieval_ext.execution.context import call
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.stores import GenericBackend
from llama_retrieval_ext.stores.engine.backend import Candidate, Search
from llama_retrieval_ext.stores.open import source_of
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases
from tests.meeting import Meeting, met_by_the_loop

SearchFunction = Callable[[GenericBackend, Search], list[Candidate]]
EN = Compare("lang", FilterOperator.EQ, "en")


@pytest.fixture(params=["sync", "async"])
def search(request: pytest.FixtureRequest) -> SearchFunction:
    def found(backend: GenericBackend, search: Search) -> list[Candidate]:
        plan = call(backend.dense([1.0, 0.0], search))
        return run(plan) if request.param == "sync" else asyncio.run(arun(plan))

    return found


class Remote(BasePydanticVectorStore):
    """A store with a real async way, that returns the given rows and keeps the queries."""

    stores_text: bool = True
    is_embedding_query: bool = True
    _rows: list[tuple[str, float | None]] = PrivateAttr(default_factory=list)
    _error: Exception | None = PrivateAttr(default=None)
    _queries: list[VectorStoreQuery] = PrivateAttr(default_factory=list)

    def answers(self, *rows: tuple[str, float | None], error: Exception | None = None) -> "Remote":
        self._rows, self._error = list(rows), error
        return self

    @property
    def client(self) -> None:
        return None

    @property
    def queries(self) -> list[VectorStoreQuery]:
        return self._queries

    def add(self, nodes: Sequence[BaseNode], **_: object) -> list[str]:
        raise NotImplementedError

    def delete(self, ref_doc_id: str, **_: object) -> None:
        raise NotImplementedError

    def query(self, query: VectorStoreQuery, **_: object) -> VectorStoreQueryResult:
        self._queries.append(query)
        if self._error is not None:
            raise self._error
        return VectorStoreQueryResult(
            nodes=[TextNode(id_=id_, text=id_, metadata={"lang": "en"}) for id_, _ in self._rows],
            similarities=[score for _, score in self._rows],  # type: ignore[misc]  # as some do
        )

    async def aquery(self, query: VectorStoreQuery, **_: object) -> VectorStoreQueryResult:
        await asyncio.sleep(0)
        return self.query(query)


def ids_and_scores(found: Sequence[Candidate]) -> list[tuple[str, float]]:
    return [(each.node_id, each.score) for each in found]


def test_the_best_hits_come_first_whatever_the_order_of_the_store(search: SearchFunction) -> None:
    store = Remote().answers(("c", 0.1), ("b", 0.9), ("a", 0.9))
    best = [("a", 0.9), ("b", 0.9), ("c", 0.1)]
    for top_k in (2, 5):
        assert ids_and_scores(search(GenericBackend(store), Search(top_k))) == best[:top_k]
        assert store.queries[-1].similarity_top_k == top_k


def test_a_filter_without_values_is_evaluated_without_the_store(search: SearchFunction) -> None:
    store = Remote().answers(("a", 0.9))
    nobody = Compare("document", FilterOperator.IN, ())
    assert search(GenericBackend(store), Search(5, AllOf((EN, nobody)))) == []
    assert store.queries == []
    anybody = Compare("document", FilterOperator.NIN, ())
    assert ids_and_scores(search(GenericBackend(store), Search(5, anybody))) == [("a", 0.9)]
    assert store.queries[0].filters is None


def test_distances_become_negative_scores(search: SearchFunction) -> None:
    backend = GenericBackend(Remote().answers(("far", 0.9), ("near", 0.1)), lower_is_better=True)
    assert ids_and_scores(search(backend, Search(5))) == [("near", -0.1), ("far", -0.9)]
    assert backend.features.dense is not None
    assert (backend.features.dense.kind, backend.features.dense.high) == ("negative_distance", 0.0)


@cases("score", [None, math.nan])
def test_a_score_that_is_no_number_is_refused(score: float | None, search: SearchFunction) -> None:
    store = Remote().answers(("a", 0.9), ("b", score))
    with pytest.raises(ScoreError, match="'b'"):
        search(GenericBackend(store), Search(5))


def test_hits_without_scores_are_refused(search: SearchFunction) -> None:
    class Scoreless(Remote):
        def query(self, query: VectorStoreQuery, **_: object) -> VectorStoreQueryResult:
            return VectorStoreQueryResult(nodes=[TextNode(id_="a")])

    with pytest.raises(ScoreError, match="1 node and 0 scores"):
        search(GenericBackend(Scoreless()), Search(5))


def test_a_condition_goes_to_the_store_as_llama_index_filters(search: SearchFunction) -> None:
    store = Remote().answers(("a", 0.9))
    search(GenericBackend(store), Search(5, EN))
    filters = store.queries[0].filters
    assert filters is not None
    assert [(condition.key, condition.value) for condition in filters.legacy_filters()] == [
        ("lang", "en")
    ]


def test_a_comparison_of_dates_that_another_store_could_make_as_text_is_refused(
    search: SearchFunction,
) -> None:
    since = Not(Compare("day", FilterOperator.GTE, "2024-01-31"))
    with pytest.raises(UnsupportedFilterError, match="the date '2024-01-31' for 'day' as text"):
        search(GenericBackend(Remote()), Search(5, since))


def test_a_filter_that_the_store_cannot_evaluate_is_refused(search: SearchFunction) -> None:
    store = Remote().answers(error=NotImplementedError("no such operator"))
    with pytest.raises(UnsupportedFilterError, match=r"Remote cannot evaluate .*no such operator"):
        search(GenericBackend(store), Search(5, EN))


@cases(
    ("condition", "calls_store", "filtered"),
    [
        (Not(AnyOf(())), True, False),
        (Not(AllOf(())), False, False),
        (AllOf((EN, AnyOf(()))), False, False),
        (AnyOf((EN, Not(AllOf(())))), True, True),
    ],
)
def test_empty_groups_never_reach_a_store(
    condition: Condition, calls_store: bool, filtered: bool, search: SearchFunction
) -> None:
    store = Remote().answers(("a", 0.9))
    found = search(GenericBackend(store), Search(5, condition))
    assert ids_and_scores(found) == ([("a", 0.9)] if calls_store else [])
    assert [query.filters is not None for query in store.queries] == (
        [filtered] if calls_store else []
    )


def test_hits_of_another_scope_are_refused_or_dropped() -> None:
    leaky = VectorRetriever(Remote().answers(("a", 0.9)))
    query = Query("q", embedding=[1.0, 0.0], scope=Scope("acme"))
    with pytest.raises(ScopeViolationError, match="Remote returned 1 of 1 hits"):
        leaky.retrieve(query)
    lenient = VectorRetriever(GenericBackend(Remote().answers(("a", 0.9)), drop_violations=True))
    result = lenient.search(query)
    assert result.hits == []
    assert len(result.degraded) == 1


def test_real_async_is_declared_where_the_store_has_it() -> None:
    assert GenericBackend(Remote()).features.real_async
    index = VectorStoreIndex([], embed_model=FakeEmbedding())
    assert not source_of(index).backend.features.real_async


def index_of(*texts: str) -> VectorStoreIndex:
    nodes = [TextNode(id_=text, text=text, metadata={"lang": "en"}) for text in texts]
    return VectorStoreIndex(nodes, embed_model=FakeEmbedding())


def test_a_hit_without_its_text_is_left_out_and_noted_as_degraded() -> None:
    index = index_of("leave", "lunch")
    index.docstore.delete_document("leave")
    result = VectorRetriever(index).search("leave lunch")
    assert node_ids(result.hits) == ["lunch"]
    assert "no text for 1 hit: ['leave']" in result.degraded[0].reason


def test_a_store_that_kept_no_metadata_cannot_be_filtered() -> None:
    index = index_of("leave")
    store = index.vector_store
    assert isinstance(store, SimpleVectorStore)
    store.data.metadata_dict.clear()
    assert node_ids(VectorRetriever(index).retrieve("leave")) == ["leave"]
    with pytest.raises(UnsupportedFilterError, match="persisted without metadata"):
        VectorRetriever(index, scope=Scope("acme")).retrieve("leave")


def test_embeddings_of_zeros_score_0_in_a_simple_store(search: SearchFunction) -> None:
    vectors = {"near": [1.0, 0.0], "zero": [0.0, 0.0], "away": [-1.0, 0.0]}
    nodes = [TextNode(id_=name, text="a", embedding=vector) for name, vector in vectors.items()]
    backend = source_of(VectorStoreIndex(nodes, embed_model=FakeEmbedding(dim=2))).backend
    assert isinstance(backend, GenericBackend)
    found = ids_and_scores(search(backend, Search(3)))
    assert found == [("near", 1.0), ("zero", 0.0), ("away", -1.0)]
    zeros = backend.dense([0.0, 0.0], Search(3)).function()
    assert ids_and_scores(zeros) == [("away", 0.0), ("near", 0.0), ("zero", 0.0)]
    with pytest.raises(ConfigurationError, match="embedding of the query has a value that is not"):
        backend.dense([float("nan"), 0.0], Search(3))


def test_an_index_over_a_store_of_nodes_needs_no_docstore() -> None:
    store = Remote().answers(("a", 0.9))
    index = VectorStoreIndex.from_vector_store(store, embed_model=FakeEmbedding())
    assert node_ids(VectorRetriever(index).retrieve("query")) == ["a"]


class Blocks(SimpleVectorStore):
    """Blocks for a meeting, and has no async way of its own."""

    _meeting: Meeting = PrivateAttr(default_factory=lambda: Meeting(2))

    def query(self, query: VectorStoreQuery, **options: object) -> VectorStoreQueryResult:
        self._meeting.join()
        return super().query(query, **options)


def test_a_store_without_an_async_method_does_not_block_the_event_loop() -> None:
    model, store = FakeEmbedding(), Blocks()
    index = VectorStoreIndex(
        [TextNode(id_="n1", text="annual leave")],
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=model,
    )
    retriever = VectorRetriever(index)
    result = asyncio.run(met_by_the_loop(retriever, store._meeting))
    assert node_ids(result.hits) == ["n1"]


def test_a_store_without_text_needs_a_lookup() -> None:
    with pytest.raises(ConfigurationError, match="hand in the VectorStoreIndex over it"):
        GenericBackend(SimpleVectorStore())
