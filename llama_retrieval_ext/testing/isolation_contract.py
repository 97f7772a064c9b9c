"""Tests of scope and filters: they narrow, always apply, and lose no other hits."""
# ruff: noqa: D102 - the names of the tests say what they say

import asyncio
import copy
from collections.abc import Sequence
from typing import ClassVar

from llama_index.core.schema import NodeWithScore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.errors import InvalidFilterError, ScopeError
from llama_retrieval_ext.filters import Condition, matches, parse_filters
from llama_retrieval_ext.hits import node_ids, score_of
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.corpus import ACME, CORPUS_SIZE, GLOBEX, SAMPLE_QUERIES
from llama_retrieval_ext.testing.with_pytest import case, pytest


def _where(
    key: str, value: str | int | list[str] | None, operator: FilterOperator = FilterOperator.EQ
) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])


_ENGLISH = _where("lang", "en")
_RECENT = _where("year", 2021, FilterOperator.GTE)
_FILTERS = {
    "one language": _ENGLISH,
    "from a year on": _RECENT,
    "with a tag": _where("tags", "leave", FilterOperator.CONTAINS),
    "either of two": MetadataFilters(filters=[_ENGLISH, _RECENT], condition=FilterCondition.OR),
    "neither of two": MetadataFilters(filters=[_ENGLISH, _RECENT], condition=FilterCondition.NOT),
    "without a field": _where("lang", None, FilterOperator.IS_EMPTY),
}
_SCOPES = (ACME, GLOBEX, Scope("acme", ["engineering"]), Scope(kb_ids=["handbook"]))


class RetrieverFixtures:
    """Fixtures and settings that a subclass of a contract overrides.

    Attributes:
        queries: Queries; each must find nodes of both tenants of the sample corpus.
        prefix_stable: Whether the hits for a smaller ``top_k`` start those for a larger one.
            Disable it only if the number of hits is an input to the ranking.
        independent: Whether a narrower query finds all hits that it may see. Disable it only if
            paths lead to hits through nodes outside of its scope.
    """

    queries: ClassVar[tuple[str, ...]] = SAMPLE_QUERIES
    prefix_stable: ClassVar[bool] = True
    independent: ClassVar[bool] = True

    @pytest.fixture
    def retriever(self) -> Retriever:
        """Return the retriever under test over `sample_nodes`; every subclass overrides it."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named retriever")

    @pytest.fixture
    def empty_retriever(self, retriever: Retriever) -> Retriever:
        """Return a retriever without nodes; by default one in the scope of an unknown tenant."""
        return retriever.for_scope(Scope("nobody"))


def assert_same_ranking(first: Sequence[NodeWithScore], second: Sequence[NodeWithScore]) -> None:
    """Fail unless two rankings have the same ids in the same order, and the same scores."""
    assert node_ids(first) == node_ids(second)
    assert [score_of(hit) for hit in first] == pytest.approx([score_of(hit) for hit in second])


class IsolationContract(RetrieverFixtures):
    """Tests that no hit is outside the scope and that no filter is dropped."""

    def test_filters_keep_what_matches_and_only_that(self, retriever: Retriever) -> None:
        for query in self.queries:
            unlimited = _everything(retriever, query)
            for name, filters in _FILTERS.items():
                with case(query, name):
                    hits = retriever.retrieve(Query(query, top_k=CORPUS_SIZE, filters=filters))
                    self._assert_narrowed(hits, unlimited, parse_filters(filters))

    def test_a_bound_scope_shows_what_belongs_to_it_and_only_that(
        self, retriever: Retriever
    ) -> None:
        for query in self.queries:
            unlimited = _everything(retriever, query)
            for scope in _SCOPES:
                with case(query, scope):
                    bound = retriever.for_scope(scope)
                    hits = _everything(bound, query)
                    self._assert_narrowed(hits, unlimited, scope.condition)
                    asynchronous = asyncio.run(bound.aretrieve(Query(query, top_k=CORPUS_SIZE)))
                    assert_same_ranking(hits, asynchronous)
            assert_same_ranking(
                _everything(retriever, query), unlimited
            )  # for_scope did not change it

    def test_a_scope_of_the_call_does_what_a_bound_one_does(self, retriever: Retriever) -> None:
        for scope in _SCOPES:
            bound = retriever.for_scope(scope)
            for query in self.queries:
                with case(query, scope):
                    in_call = retriever.search(query, scope=scope).hits
                    assert_same_ranking(in_call, bound.retrieve(query))
                    assert_same_ranking(in_call, retriever.retrieve(Query(query, scope=scope)))

    def test_each_tenant_has_an_answer_and_they_share_nothing(self, retriever: Retriever) -> None:
        for query in self.queries:
            acme = node_ids(_everything(retriever.for_scope(ACME), query))
            globex = node_ids(_everything(retriever.for_scope(GLOBEX), query))
            assert acme
            assert globex
            assert set(acme).isdisjoint(globex)

    def test_a_bound_scope_cannot_be_left(self, retriever: Retriever) -> None:
        bound = retriever.for_scope(ACME)
        with pytest.raises(ScopeError, match="nothing in common"):
            bound.for_scope(GLOBEX)
        with pytest.raises(ScopeError, match="nothing in common"):
            bound.search(self.queries[0], scope=GLOBEX)
        with pytest.raises(ScopeError, match="nothing in common"):
            asyncio.run(bound.aretrieve(Query(self.queries[0], scope=GLOBEX)))

    def test_filters_cannot_widen_a_scope(self, retriever: Retriever) -> None:
        others = _where("tenant_id", "globex")
        both = _where("tenant_id", ["acme", "globex"], FilterOperator.IN)
        bound = retriever.for_scope(ACME)
        for query in self.queries:
            assert bound.search(query, filters=others).hits == []
            hits = bound.search(query, filters=both, top_k=CORPUS_SIZE).hits
            self._assert_narrowed(hits, _everything(retriever, query), ACME.condition)

    def test_filters_of_the_retriever_the_query_and_the_call_all_hold(
        self, retriever: Retriever
    ) -> None:
        filtered = copy.copy(retriever)
        filtered.filters = _ENGLISH
        handbook = _where("kb_id", "handbook")
        for query in self.queries:
            asked = Query(query, filters=_RECENT, top_k=CORPUS_SIZE)
            hits = filtered.search(asked, filters=handbook).hits
            all_of_them = MetadataFilters(filters=[_ENGLISH, _RECENT, handbook])
            self._assert_narrowed(hits, _everything(retriever, query), parse_filters(all_of_them))

    def test_filters_that_mean_nothing_are_refused(self, retriever: Retriever) -> None:
        with pytest.raises(InvalidFilterError, match="empty group"):
            retriever.search(self.queries[0], filters=MetadataFilters(filters=[]))

    def _assert_narrowed(
        self,
        hits: Sequence[NodeWithScore],
        unlimited: Sequence[NodeWithScore],
        condition: Condition,
    ) -> None:
        """Fail unless hits satisfy the condition and include all such hits of the full ranking.

        More hits are allowed: those that a leg's own limit excluded before.
        """
        assert all(matches(condition, hit.node.metadata) for hit in hits)
        expected = [hit for hit in unlimited if matches(condition, hit.node.metadata)]
        if self.independent:
            assert set(node_ids(hits)) >= set(node_ids(expected))


def _everything(retriever: Retriever, query: str) -> list[NodeWithScore]:
    return retriever.retrieve(Query(query, top_k=CORPUS_SIZE))
