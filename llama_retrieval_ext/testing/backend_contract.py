"""`BackendContract`: what every backend promises, as tests to inherit."""
# ruff: noqa: D102 - the names of the tests say what they say

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, TypeAlias, TypeVar

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.embeddings.base import similarity as cosine
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import (
    DimensionMismatchError,
    UnsupportedFilterError,
    UnsupportedModeError,
)
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, matches
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stages.algebra.fusion import FusedId
from llama_retrieval_ext.stores.backend import (
    Backend,
    Dense,
    Found,
    Keyword,
    ScoredId,
    ScoreRange,
    Search,
    dense_and_keyword,
    fusing,
    ids_first,
)
from llama_retrieval_ext.stores.grouping import grouping
from llama_retrieval_ext.testing.corpus import ACME, GLOBEX, SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fake_embedding import FakeEmbedding
from llama_retrieval_ext.testing.fusion_agreement import Asked as AskedBoth
from llama_retrieval_ext.testing.fusion_agreement import assert_fusion_agrees, sample_fusions
from llama_retrieval_ext.testing.sample_conditions import SAMPLE_CONDITIONS
from llama_retrieval_ext.testing.with_pytest import pytest

T = TypeVar("T")
# How one kind of search is asked: a text and the rest.
Asked: TypeAlias = Callable[[str, Search], Call[list[Found]]]

_EVERYTHING = len(sample_nodes())
_NOBODY = Scope("nobody")


class BackendContract:
    """Subclass it, give it a ``backend`` over `sample_nodes`, and pytest tests every promise.

    ::

        class TestMyBackend(BackendContract):
            @pytest.fixture
            def backend(self, embed_model):
                return MyBackend(store_of(sample_nodes(embed_model)))

    What is tested is what ``backend.capabilities`` declares; the rest must be refused.

    Attributes:
        refused: Operators that the engine cannot evaluate and that the backend therefore refuses.

    """

    refused: ClassVar[frozenset[FilterOperator]] = frozenset()

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
            assert all(_found(ask(text, Search(top_k=3))) for text in SAMPLE_QUERIES)

    @pytest.mark.parametrize("top_k", [1, 2, 3, _EVERYTHING, 10 * _EVERYTHING])
    def test_there_are_at_most_top_k_best_first_and_ties_go_by_node_id(
        self, searches: list[Asked], top_k: int
    ) -> None:
        for ask in searches:
            for text in SAMPLE_QUERIES:
                everything = _found(ask(text, Search(top_k=_EVERYTHING)))
                keys = [(-each.score, each.node_id) for each in everything]
                assert keys == sorted(keys)
                found = _found(ask(text, Search(top_k=top_k)))
                assert _ids(found) == _ids(everything)[:top_k]

    def test_async_finds_what_sync_finds(self, searches: list[Asked]) -> None:
        for ask in searches:
            for text in SAMPLE_QUERIES:
                found = asyncio.run(arun(_plan(ask(text, Search(top_k=5)))))
                _assert_same(found, _found(ask(text, Search(top_k=5))))

    def test_nodes_come_back_whole(self, searches: list[Asked]) -> None:
        originals = {node.node_id: node for node in sample_nodes()}
        for ask in searches:
            for node in _nodes(_found(ask(SAMPLE_QUERIES[0], Search(top_k=_EVERYTHING)))):
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
                found = _found(ask(text, Search(top_k=_EVERYTHING)))
                assert all(_within(declared, each.score) for each in found)

    def test_vector_search_finds_every_node_and_cosine_means_cosine(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        declared = backend.capabilities.dense
        if declared is None:
            return
        embeddings = {node.node_id: node.embedding for node in sample_nodes(embed_model)}
        query = embed_model.get_query_embedding(SAMPLE_QUERIES[0])
        found = _found(backend.dense(query, Search(top_k=_EVERYTHING)))
        assert set(_ids(found)) == set(embeddings)
        if declared.kind == "cosine":
            for each in found:
                expected = cosine(query, embeddings[each.node_id] or [])
                assert each.score == pytest.approx(expected, abs=1e-3)

    def test_keyword_search_finds_only_nodes_that_share_a_term(self, backend: Backend) -> None:
        if backend.capabilities.keyword is None:
            return
        everything = Search(top_k=_EVERYTHING)
        assert _ids(_found(backend.keyword("trains", everything))) == ["globex-travel"]
        in_chinese = _found(backend.keyword("年假", everything))
        assert set(_ids(in_chinese)) == {"acme-leave-zh", "globex-leave-zh"}
        assert all(each.score > 0 for each in in_chinese)
        assert _found(backend.keyword("zeppelin", everything)) == []
        assert _found(backend.keyword("?! ...", everything)) == []

    @pytest.mark.parametrize("condition", SAMPLE_CONDITIONS.values(), ids=SAMPLE_CONDITIONS)
    def test_a_condition_keeps_exactly_what_matches_it_or_is_refused(
        self, searches: list[Asked], condition: Condition
    ) -> None:
        refused = self.refused.intersection(_operators(condition))
        for ask in searches:
            for text in SAMPLE_QUERIES:
                limited = _later(ask, text, Search(_EVERYTHING, condition))
                if refused:
                    with pytest.raises(UnsupportedFilterError):
                        limited()
                    continue
                everything = _found(ask(text, Search(top_k=_EVERYTHING)))
                expected = {n.node_id for n in _nodes(everything) if matches(condition, n.metadata)}
                assert set(_ids(limited())) == expected

    @pytest.mark.parametrize("scope", [ACME, GLOBEX, Scope("acme", ["handbook"])], ids=repr)
    def test_a_scope_shows_what_belongs_to_it_and_only_that(
        self, searches: list[Asked], scope: Scope
    ) -> None:
        for ask in searches:
            for text in SAMPLE_QUERIES:
                everything = _found(ask(text, Search(top_k=_EVERYTHING)))
                own = {
                    n.node_id for n in _nodes(everything) if matches(scope.condition, n.metadata)
                }
                found = _found(ask(text, Search(_EVERYTHING, scope.condition, scope)))
                assert set(_ids(found)) == own

    def test_no_match_gives_nothing(self, searches: list[Asked]) -> None:
        for ask in searches:
            for text in SAMPLE_QUERIES:
                assert _found(ask(text, Search(5, _NOBODY.condition, _NOBODY))) == []

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
            _found(backend.dense(longer, Search(top_k=1)))

    def test_a_batch_finds_what_single_searches_find(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        declared = backend.capabilities
        narrow = Compare("lang", FilterOperator.EQ, "en")
        searches = [Search(5), Search(2), Search(5, ACME.condition, ACME), Search(5, narrow)]
        asked: list[Dense | Keyword] = []
        for text in (*SAMPLE_QUERIES, "", "?!"):
            for search in searches:
                if declared.keyword is not None:
                    asked.append(Keyword(text, search))
                if declared.dense is not None and text:
                    asked.append(Dense(tuple(embed_model.get_query_embedding(text)), search))
        batch = backend.batch(asked)
        if batch is None:
            assert not declared.one_round_trip
            return
        for found, each in zip(_found(batch), asked, strict=True):
            alone = (
                backend.dense(each.embedding, each.search)
                if isinstance(each, Dense)
                else backend.keyword(each.text, each.search)
            )
            _assert_same(found, _found(alone))

    @pytest.mark.parametrize("scope", [None, ACME, _NOBODY], ids=repr)
    def test_ids_come_first_and_nodes_later_as_they_come_together(
        self, backend: Backend, embed_model: BaseEmbedding, scope: Scope | None
    ) -> None:
        if not backend.capabilities.ids_first:
            return
        search = Search(4, None if scope is None else scope.condition, scope)
        for text in (*SAMPLE_QUERIES, "?!"):
            vector = embed_model.get_query_embedding(text)
            together = backend.batch(dense_and_keyword(vector, text, search))
            assert together is not None
            both = [each for ranking in _found(together) for each in ranking]
            top, nodes = _found(ids_first(backend).best_of_both(vector, text, search, _all_of_both))
            assert [each[:2] for each in top] == [(each.node_id, each.score) for each in both]
            assert nodes == {each.node_id: each.node for each in both}
        vector = embed_model.get_query_embedding(SAMPLE_QUERIES[0])
        asked = vector, SAMPLE_QUERIES[0], search, _everything_and_more
        _, nodes = _found(ids_first(backend).best_of_both(*asked))
        assert {id_: node.node_id for id_, node in nodes.items()} == {
            node.node_id: node.node_id
            for node in sample_nodes()
            if matches(search.condition, node.metadata)
        }

    @pytest.mark.parametrize("scope", [None, ACME, _NOBODY], ids=repr)
    @pytest.mark.parametrize("size", [1, 2])
    def test_the_best_nodes_of_the_best_documents_are_those_of_all(
        self, backend: Backend, embed_model: BaseEmbedding, scope: Scope | None, size: int
    ) -> None:
        if not backend.capabilities.grouping:
            return
        search = Search(_EVERYTHING, None if scope is None else scope.condition, scope)
        few = replace(search, top_k=3)
        for text in SAMPLE_QUERIES:
            vector = tuple(embed_model.get_query_embedding(text))
            for found, asked in (
                (_found(backend.dense(vector, search)), Dense(vector, few)),
                (_found(backend.keyword(text, search)), Keyword(text, few)),
            ):
                groups = _by_document(_found(grouping(backend).grouped(asked, size)))
                everything = _by_document(found)
                # Which of those that tie is the engine's choice.
                assert [each[0] for each in groups.values()] == pytest.approx(
                    [each[0] for each in everything.values()][:3], abs=1e-6
                )
                for document, scores in groups.items():
                    assert scores == pytest.approx(everything[document][:size], abs=1e-6)

    @pytest.mark.parametrize("scope", [None, ACME, _NOBODY], ids=repr)
    def test_what_the_engine_fuses_is_what_our_fusion_gives_but_for_ties(
        self, backend: Backend, embed_model: BaseEmbedding, scope: Scope | None
    ) -> None:
        condition = None if scope is None else scope.condition
        for native in backend.capabilities.fusions:
            for how in sample_fusions(native, candidates=5):
                for text in (*SAMPLE_QUERIES, "?!"):
                    vector = embed_model.get_query_embedding(text)
                    search = Search(4, condition, scope)
                    assert_fusion_agrees(backend, AskedBoth(vector, text, search), how)

    def test_async_fuses_what_sync_fuses(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        text = SAMPLE_QUERIES[0]
        vector, search = embed_model.get_query_embedding(text), Search(5, ACME.condition, ACME)
        for native in backend.capabilities.fusions:
            how = next(sample_fusions(native, candidates=5))
            found = _found(fusing(backend).fused(vector, text, search, how))
            again = asyncio.run(arun(_plan(fusing(backend).fused(vector, text, search, how))))
            assert found
            _assert_same(again, found)

    def test_it_describes_itself_in_json_with_the_name_of_its_engine(
        self, backend: Backend
    ) -> None:
        told = json.loads(json.dumps(dict(backend.describe())))
        assert backend.engine
        assert told["engine"] == backend.engine


def _all_of_both(near: Sequence[ScoredId], sharing: Sequence[ScoredId]) -> list[FusedId]:
    return [FusedId(node_id, score, ()) for node_id, score in (*near, *sharing)]


def _everything_and_more(*_: Sequence[ScoredId]) -> list[FusedId]:
    ids = [node.node_id for node in sample_nodes()]
    return [FusedId(node_id, 0.0, ()) for node_id in (*ids, "none such")]


def _by_document(found: Sequence[Found]) -> dict[str, list[float]]:
    """The scores of each document, best first; the documents by their best."""
    scores: dict[str, list[float]] = {}
    for each in found:
        scores.setdefault(str(each.node.ref_doc_id), []).append(each.score)
    return scores


def _later(ask: Asked, text: str, search: Search) -> Callable[[], list[Found]]:
    """The search as a function: a backend may refuse when it is asked or when it is run."""
    return lambda: _found(ask(text, search))


def _plan(call: Call[T]) -> Plan[T]:
    value: T = yield call
    return value


def _found(call: Call[T]) -> T:
    return run(_plan(call))


def _ids(found: Sequence[Found]) -> list[str]:
    return [each.node_id for each in found]


def _nodes(found: Sequence[Found]) -> list[BaseNode]:
    return [each.node for each in found]


def _assert_same(first: Sequence[Found], second: Sequence[Found]) -> None:
    assert _ids(first) == _ids(second)
    scores = [each.score for each in second]
    assert [each.score for each in first] == pytest.approx(scores)


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
