"""`BackendContract`: requirements for every backend, as tests to inherit."""
# ruff: noqa: D102 - the names of the tests say what they say

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import TypeAlias, TypeVar

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.embeddings.base import similarity as cosine
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import (
    DimensionMismatchError,
    UnsupportedFilterError,
    UnsupportedModeError,
)
from llama_retrieval_ext.execution.context import call
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import comparisons, matches
from llama_retrieval_ext.pipeline.fusion import FusedId
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate, Search, hybrid_backend
from llama_retrieval_ext.testing.corpus import (
    ACME,
    GLOBEX,
    SAMPLE_CONDITIONS,
    SAMPLE_QUERIES,
    sample_nodes,
)
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.fusion_agreement import (
    SearchCase,
    assert_fusion_agrees,
    sample_fusions,
)
from llama_retrieval_ext.testing.with_pytest import case, pytest

_SCOPES = (None, ACME, Scope("nobody"))


class BothSearchesContract:
    """Part of `BackendContract` about both searches in one request, and engine fusion."""

    @pytest.mark.parametrize("nodes_last", [False, True])
    def test_both_searches_in_one_request_find_what_each_finds_alone(
        self, backend: Backend, embed_model: BaseEmbedding, *, nodes_last: bool
    ) -> None:
        if not backend.features.one_round_trip:
            return
        for scope, text in product(_SCOPES, (*SAMPLE_QUERIES, "?!")):
            with case(scope, text):
                search = Search(20, None if scope is None else scope.condition, scope)
                vector = embed_model.get_query_embedding(text)
                both = hybrid_backend(backend).hybrid(vector, text, search, nodes_last=nodes_last)
                candidates = run(call(both))
                for ranking, alone in (
                    (candidates.vector, backend.dense(vector, search)),
                    (candidates.keyword, backend.keyword(text, search)),
                ):
                    best = [FusedId(key, score, ()) for key, score in ranking]
                    assert_same(run(candidates.chosen(best, top_k=20)), found_by(alone))

    def test_of_both_searches_only_the_chosen_nodes_are_returned(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        if not backend.features.one_round_trip:
            return
        text = SAMPLE_QUERIES[0]
        vector, search = embed_model.get_query_embedding(text), Search(20)
        both = hybrid_backend(backend).hybrid(vector, text, search, nodes_last=True)
        candidates = run(call(both))
        nearest = found_by(backend.dense(vector, search))
        best = [FusedId(candidates.vector[place][0], -float(place), ()) for place in (1, 2, 3)]
        chosen = run(candidates.chosen(best, top_k=2))
        assert [hit.node for hit in chosen] == [hit.node for hit in nearest[1:3]]
        assert [hit.score for hit in chosen] == [-1.0, -2.0]

    def test_what_the_engine_fuses_is_what_our_fusion_gives_but_for_ties(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        fusions = [
            fusion
            for native in backend.features.fusions
            for fusion in sample_fusions(native, candidates=5)
        ]
        for scope, text in product(_SCOPES, (*SAMPLE_QUERIES[1::2], "?!")):
            vector = embed_model.get_query_embedding(text)
            search = Search(4, None if scope is None else scope.condition, scope)
            for fusion in fusions:
                with case(text, scope, fusion):
                    assert_fusion_agrees(backend, SearchCase(vector, text, search), fusion)

    def test_async_fuses_what_sync_fuses(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        text = SAMPLE_QUERIES[0]
        vector, search = embed_model.get_query_embedding(text), Search(5, ACME.condition, ACME)
        for native in backend.features.fusions:
            how = next(sample_fusions(native, candidates=5))
            fused = partial(hybrid_backend(backend).fused, vector, text, search, how)
            hits = found_by(fused())
            again = asyncio.run(arun(call(fused())))
            assert hits
            assert_same(again, hits)


def _above(ranking: list[Candidate], cut: float) -> list[str]:
    return [candidate.node_id for candidate in ranking if candidate.score > cut]


# A function for one kind of search, of a text and the other arguments.
SearchFunction: TypeAlias = Callable[[str, Search], Call[list[Candidate]]]

_EVERYTHING = len(sample_nodes())


class BackendContract(BothSearchesContract):
    """Tests of a backend: subclass it with a fixture ``backend`` over `sample_nodes`.

    ::

        class TestMyBackend(BackendContract):
            @pytest.fixture
            def backend(self, embed_model):
                return MyBackend(store_of(sample_nodes(embed_model)))

    Features declared in ``backend.features`` are tested; the others must be refused.
    """

    @pytest.fixture
    def embed_model(self) -> BaseEmbedding:
        """Return the embedding model of the sample nodes and the queries."""
        return FakeEmbedding()

    @pytest.fixture
    def backend(self) -> Backend:
        """Return the backend under test with `sample_nodes`; every subclass overrides it."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named backend")

    @pytest.fixture
    def searches(self, backend: Backend, embed_model: BaseEmbedding) -> list[SearchFunction]:
        """Return the kinds of search that the backend declares."""
        kinds: list[SearchFunction] = []
        if backend.features.dense is not None:
            kinds.append(
                lambda text, search: backend.dense(embed_model.get_query_embedding(text), search)
            )
        if backend.features.keyword is not None:
            kinds.append(backend.keyword)
        return kinds

    def test_it_declares_a_search_that_finds_something(
        self, searches: list[SearchFunction]
    ) -> None:
        assert searches
        for ask in searches:
            assert all(found_by(ask(text, Search(top_k=3))) for text in SAMPLE_QUERIES)

    def test_there_are_at_most_top_k_best_first_and_ties_go_by_node_id(
        self, searches: list[SearchFunction]
    ) -> None:
        for ask, text in product(searches, SAMPLE_QUERIES):
            everything = found_by(ask(text, Search(top_k=_EVERYTHING)))
            for top_k in (1, 2, 3, _EVERYTHING, 10 * _EVERYTHING):
                with case(text, top_k):
                    hits = found_by(ask(text, Search(top_k=top_k)))
                    keys = [(-hit.score, hit.node_id) for hit in hits]
                    assert keys == sorted(keys)
                    expected = everything[:top_k]
                    # Which of the nodes that tie with the last are found is the engine's choice.
                    cut = expected[-1].score + 1e-6
                    assert _above(hits, cut) == _above(expected, cut)
                    assert len(hits) == len(expected)
                    assert all(hit.score >= cut - 1e-5 for hit in hits)

    def test_async_finds_what_sync_finds(self, searches: list[SearchFunction]) -> None:
        for ask in searches:
            for text in SAMPLE_QUERIES:
                hits = asyncio.run(arun(call(ask(text, Search(top_k=5)))))
                assert_same(hits, found_by(ask(text, Search(top_k=5))))

    def test_nodes_come_back_whole(self, searches: list[SearchFunction]) -> None:
        originals = {node.node_id: node for node in sample_nodes()}
        for ask in searches:
            for node in _nodes(found_by(ask(SAMPLE_QUERIES[0], Search(top_k=_EVERYTHING)))):
                original = originals[node.node_id]
                assert node.get_content() == original.text
                assert node.metadata == original.metadata
                assert node.ref_doc_id == original.ref_doc_id

    def test_scores_are_within_the_declared_range(
        self, backend: Backend, searches: list[SearchFunction]
    ) -> None:
        ranges = [backend.features.dense, backend.features.keyword]
        for ask, declared in zip(searches, filter(None, ranges), strict=True):
            for text in SAMPLE_QUERIES:
                hits = found_by(ask(text, Search(top_k=_EVERYTHING)))
                low = -math.inf if declared.low is None else declared.low
                high = math.inf if declared.high is None else declared.high
                # Engines calculate in 32 bits.
                assert all(low - 1e-5 <= hit.score <= high + 1e-5 for hit in hits)

    def test_vector_search_finds_every_node_and_cosine_means_cosine(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        declared = backend.features.dense
        if declared is None:
            return
        embeddings = {node.node_id: node.embedding for node in sample_nodes(embed_model)}
        query = embed_model.get_query_embedding(SAMPLE_QUERIES[0])
        hits = found_by(backend.dense(query, Search(top_k=_EVERYTHING)))
        assert set(ids_of(hits)) == set(embeddings)
        if declared.kind == "cosine":
            for hit in hits:
                expected = cosine(query, embeddings[hit.node_id] or [])
                assert hit.score == pytest.approx(expected, abs=1e-3)

    def test_keyword_search_finds_only_nodes_that_share_a_term(self, backend: Backend) -> None:
        if backend.features.keyword is None:
            return
        everything = Search(top_k=_EVERYTHING)
        assert ids_of(found_by(backend.keyword("trains", everything))) == ["globex-travel"]
        in_chinese = found_by(backend.keyword("年假", everything))
        assert set(ids_of(in_chinese)) == {"acme-leave-zh", "globex-leave-zh"}
        assert all(hit.score > 0 for hit in in_chinese)
        assert found_by(backend.keyword("zeppelin", everything)) == []
        assert found_by(backend.keyword("?! ...", everything)) == []

    def test_a_condition_keeps_exactly_what_matches_it_or_is_refused(
        self, backend: Backend, searches: list[SearchFunction]
    ) -> None:
        served = backend.features.operators
        for ask, text in product(searches, SAMPLE_QUERIES[:2]):
            everything = _nodes(found_by(ask(text, Search(top_k=_EVERYTHING))))
            for name, condition in SAMPLE_CONDITIONS.items():
                limited = _later(ask, text, Search(_EVERYTHING, condition))
                with case(text, name):
                    operators = {comparison.operator for comparison in comparisons(condition)}
                    if served is None or served >= operators:
                        expected = {n.node_id for n in everything if matches(condition, n.metadata)}
                        assert set(ids_of(limited())) == expected
                    else:
                        with pytest.raises(UnsupportedFilterError):
                            limited()

    def test_a_scope_shows_what_belongs_to_it_and_only_that(
        self, searches: list[SearchFunction]
    ) -> None:
        for ask, text in product(searches, SAMPLE_QUERIES):
            everything = _nodes(found_by(ask(text, Search(top_k=_EVERYTHING))))
            for scope in (ACME, GLOBEX, Scope("acme", ["handbook"]), Scope("nobody")):
                with case(text, scope):
                    ids = {n.node_id for n in everything if matches(scope.condition, n.metadata)}
                    hits = found_by(ask(text, Search(_EVERYTHING, scope.condition, scope)))
                    assert set(ids_of(hits)) == ids

    def test_a_kind_of_search_that_is_not_declared_is_refused(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        vector = embed_model.get_query_embedding("leave")
        dense = _later(lambda _, search: backend.dense(vector, search), "", Search(top_k=1))
        keyword = _later(backend.keyword, "leave", Search(top_k=1))
        declared = backend.features
        for kind, asked in ((declared.dense, dense), (declared.keyword, keyword)):
            if kind is None:
                with pytest.raises(UnsupportedModeError):
                    asked()
            else:
                assert len(asked()) == 1

    def test_an_embedding_of_another_dimension_is_refused(
        self, backend: Backend, embed_model: BaseEmbedding
    ) -> None:
        if backend.features.dense is None:
            return
        longer = [*embed_model.get_query_embedding("leave"), 0.5]
        with pytest.raises(DimensionMismatchError):
            found_by(backend.dense(longer, Search(top_k=1)))

    def test_it_describes_itself_in_json_with_the_name_of_its_engine(
        self, backend: Backend
    ) -> None:
        parsed = json.loads(json.dumps(dict(backend.describe())))
        assert backend.engine
        assert parsed["engine"] == backend.engine


def _later(ask: SearchFunction, text: str, search: Search) -> Callable[[], list[Candidate]]:
    """Return the search as a function: a backend may refuse at creation or execution."""
    return lambda: found_by(ask(text, search))


def _nodes(candidates: Sequence[Candidate]) -> list[BaseNode]:
    return [candidate.node for candidate in candidates]


T = TypeVar("T")


def found_by(search: Call[T]) -> T:
    """Return the result of a search."""
    return run(call(search))


def ids_of(candidates: Sequence[Candidate]) -> list[str]:
    """Return the ids in order."""
    return [candidate.node_id for candidate in candidates]


def assert_same(first: Sequence[Candidate], second: Sequence[Candidate]) -> None:
    """Fail unless both have the same nodes in the same order, with the same scores."""
    assert ids_of(first) == ids_of(second)
    scores = [hit.score for hit in second]
    assert [hit.score for hit in first] == pytest.approx(scores)
