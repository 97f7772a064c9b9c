"""`BackendContract`: what every backend promises, as tests to inherit."""
# ruff: noqa: D102 - the names of the tests say what they say

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.embeddings.base import similarity as cosine
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import (
    DimensionMismatchError,
    UnsupportedFilterError,
    UnsupportedModeError,
)
from llama_retrieval_ext.execution.drivers import arun
from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.execution.steps import call
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, matches
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.backend import Backend, Found, ScoreRange, Search
from llama_retrieval_ext.testing.both_searches_contract import BothSearchesContract
from llama_retrieval_ext.testing.corpus import ACME, GLOBEX, SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fake_embedding import FakeEmbedding
from llama_retrieval_ext.testing.found import assert_same, found_by, ids_of
from llama_retrieval_ext.testing.grouping_contract import GroupingContract
from llama_retrieval_ext.testing.sample_conditions import SAMPLE_CONDITIONS
from llama_retrieval_ext.testing.with_pytest import pytest

# How one kind of search is asked: a text and the rest.
Asked: TypeAlias = Callable[[str, Search], Call[list[Found]]]

_EVERYTHING = len(sample_nodes())
_NOBODY = Scope("nobody")


class BackendContract(BothSearchesContract, GroupingContract):
    """Subclass it, give it a ``backend`` over `sample_nodes`, and pytest tests every promise.

    ::

        class TestMyBackend(BackendContract):
            @pytest.fixture
            def backend(self, embed_model):
                return MyBackend(store_of(sample_nodes(embed_model)))

    What is tested is what ``backend.capabilities`` declares; the rest must be refused.
    """

    @pytest.fixture
    def embed_model(self) -> BaseEmbedding:
        """What embeds the sample nodes and the queries."""
        return FakeEmbedding()

    @pytest.fixture
    def backend(self) -> Backend:
        """The backend under test, filled with `sample_nodes`; every subclass has its own."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named backend")

    @pytest.fixture
    def searches(self, backend: Backend, embed_model: BaseEmbedding) -> list[Asked]:
        """The kinds of search that the backend declares."""
        kinds: list[Asked] = []
        if backend.capabilities.dense is not None:
            kinds.append(
                lambda text, search: backend.dense(embed_model.get_query_embedding(text), search)
            )
        if backend.capabilities.keyword is not None:
            kinds.append(backend.keyword)
        return kinds

    def test_it_declares_a_search_that_finds_something(self, searches: list[Asked]) -> None:
        assert searches
        for ask in searches:
            assert all(found_by(ask(text, Search(top_k=3))) for text in SAMPLE_QUERIES)

    @pytest.mark.parametrize("top_k", [1, 2, 3, _EVERYTHING, 10 * _EVERYTHING])
    def test_there_are_at_most_top_k_best_first_and_ties_go_by_node_id(
        self, searches: list[Asked], top_k: int
    ) -> None:
        for ask in searches:
            for text in SAMPLE_QUERIES:
                everything = found_by(ask(text, Search(top_k=_EVERYTHING)))
                keys = [(-each.score, each.node_id) for each in everything]
                assert keys == sorted(keys)
                found = found_by(ask(text, Search(top_k=top_k)))
                assert ids_of(found) == ids_of(everything)[:top_k]

    def test_async_finds_what_sync_finds(self, searches: list[Asked]) -> None:
        for ask in searches:
            for text in SAMPLE_QUERIES:
                found = asyncio.run(arun(call(ask(text, Search(top_k=5)))))
                assert_same(found, found_by(ask(text, Search(top_k=5))))

    def test_nodes_come_back_whole(self, searches: list[Asked]) -> None:
        originals = {node.node_id: node for node in sample_nodes()}
        for ask in searches:
            for node in _nodes(found_by(ask(SAMPLE_QUERIES[0], Search(top_k=_EVERYTHING)))):
                original = originals[node.node_id]
                assert node.get_content() == original.text
                assert node.metadata == original.metadata
                assert node.ref_doc_id == original.ref_doc_id

    def test_scores_are_within_the_declared_range(
        self, backend: Backend, searches: list[Asked]
    ) -> None:
        ranges = [backend.capabilities.dense, backend.capabilities.keyword]
        for ask, declared in zip(searches, filter(None, ranges), strict=True):
            for text in SAMPLE_QUERIES:
                found = found_by(ask(text, Search(top_k=_EVERYTHING)))
                assert all(_within(declared, each.score) for each in found)

    def test_vector_search_finds_every_node_and_cosine_means_cosine(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        declared = backend.capabilities.dense
        if declared is None:
            return
        embeddings = {node.node_id: node.embedding for node in sample_nodes(embed_model)}
        query = embed_model.get_query_embedding(SAMPLE_QUERIES[0])
        found = found_by(backend.dense(query, Search(top_k=_EVERYTHING)))
        assert set(ids_of(found)) == set(embeddings)
        if declared.kind == "cosine":
            for each in found:
                expected = cosine(query, embeddings[each.node_id] or [])
                assert each.score == pytest.approx(expected, abs=1e-3)

    def test_keyword_search_finds_only_nodes_that_share_a_term(self, backend: Backend) -> None:
        if backend.capabilities.keyword is None:
            return
        everything = Search(top_k=_EVERYTHING)
        assert ids_of(found_by(backend.keyword("trains", everything))) == ["globex-travel"]
        in_chinese = found_by(backend.keyword("年假", everything))
        assert set(ids_of(in_chinese)) == {"acme-leave-zh", "globex-leave-zh"}
        assert all(each.score > 0 for each in in_chinese)
        assert found_by(backend.keyword("zeppelin", everything)) == []
        assert found_by(backend.keyword("?! ...", everything)) == []

    @pytest.mark.parametrize("condition", SAMPLE_CONDITIONS.values(), ids=SAMPLE_CONDITIONS)
    def test_a_condition_keeps_exactly_what_matches_it_or_is_refused(
        self, backend: Backend, searches: list[Asked], condition: Condition
    ) -> None:
        served = backend.capabilities.operators
        refused = served is not None and not served.issuperset(_operators(condition))
        for ask in searches:
            for text in SAMPLE_QUERIES:
                limited = _later(ask, text, Search(_EVERYTHING, condition))
                if refused:
                    with pytest.raises(UnsupportedFilterError):
                        limited()
                    continue
                everything = found_by(ask(text, Search(top_k=_EVERYTHING)))
                expected = {n.node_id for n in _nodes(everything) if matches(condition, n.metadata)}
                assert set(ids_of(limited())) == expected

    @pytest.mark.parametrize("scope", [ACME, GLOBEX, Scope("acme", ["handbook"])], ids=repr)
    def test_a_scope_shows_what_belongs_to_it_and_only_that(
        self, searches: list[Asked], scope: Scope
    ) -> None:
        for ask in searches:
            for text in SAMPLE_QUERIES:
                everything = found_by(ask(text, Search(top_k=_EVERYTHING)))
                own = {
                    n.node_id for n in _nodes(everything) if matches(scope.condition, n.metadata)
                }
                found = found_by(ask(text, Search(_EVERYTHING, scope.condition, scope)))
                assert set(ids_of(found)) == own

    def test_no_match_gives_nothing(self, searches: list[Asked]) -> None:
        for ask in searches:
            for text in SAMPLE_QUERIES:
                assert found_by(ask(text, Search(5, _NOBODY.condition, _NOBODY))) == []

    def test_a_kind_of_search_that_is_not_declared_is_refused(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        vector = embed_model.get_query_embedding("leave")
        dense = _later(lambda _, search: backend.dense(vector, search), "", Search(top_k=1))
        keyword = _later(backend.keyword, "leave", Search(top_k=1))
        declared = backend.capabilities
        for kind, asked in ((declared.dense, dense), (declared.keyword, keyword)):
            if kind is None:
                with pytest.raises(UnsupportedModeError):
                    asked()
            else:
                assert len(asked()) == 1

    def test_an_embedding_of_another_dimension_is_refused(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        if backend.capabilities.dense is None:
            return
        longer = [*embed_model.get_query_embedding("leave"), 0.5]
        with pytest.raises(DimensionMismatchError):
            found_by(backend.dense(longer, Search(top_k=1)))

    def test_it_describes_itself_in_json_with_the_name_of_its_engine(
        self, backend: Backend
    ) -> None:
        told = json.loads(json.dumps(dict(backend.describe())))
        assert backend.engine
        assert told["engine"] == backend.engine


def _later(ask: Asked, text: str, search: Search) -> Callable[[], list[Found]]:
    """The search as a function: a backend may refuse when it is asked or when it is run."""
    return lambda: found_by(ask(text, search))


def _nodes(found: Sequence[Found]) -> list[BaseNode]:
    return [each.node for each in found]


def _within(declared: ScoreRange, score: float) -> bool:
    low = -float("inf") if declared.low is None else declared.low
    high = float("inf") if declared.high is None else declared.high
    return low - 1e-5 <= score <= high + 1e-5  # engines calculate in 32 bits


def _operators(condition: Condition) -> Iterator[FilterOperator]:
    match condition:
        case Compare(_, operator, _):
            yield operator
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _operators(part)
        case Not(part):
            yield from _operators(part)
