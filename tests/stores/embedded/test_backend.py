"""The embedded engine behind the backend protocol."""

from collections.abc import Iterator

import pytest
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.filters import Compare, matches
from llama_retrieval_ext.stores.embedded.store import EmbeddedBackend, EmbeddedVectorStore
from llama_retrieval_ext.stores.encoding.vectors import ScoreRange
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate, Search, scored_ids
from llama_retrieval_ext.testing.corpus import ACME, GLOBEX, SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.cases import each_case

MODEL = FakeEmbedding()


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    """Over a store that the tests only read."""
    with EmbeddedVectorStore(":memory:") as store:
        store.add(sample_nodes(MODEL))
        yield EmbeddedBackend(store)


def plan(call: Call[list[Candidate]]) -> Plan[list[Candidate]]:
    found: list[Candidate] = yield call
    return found


def told(found: list[Candidate]) -> list[tuple[str, float]]:
    return [(each.node_id, each.score) for each in found]


def test_it_keeps_the_protocol(backend: EmbeddedBackend) -> None:
    kept: Backend = backend
    assert kept.features.dense == ScoreRange("cosine", -1.0, 1.0)
    assert kept.features.keyword == ScoreRange("bm25", 0.0, None)
    assert kept.features.one_round_trip
    assert kept.features.mmr
    assert not kept.features.real_async
    assert not kept.drop_violations
    assert EmbeddedBackend(backend.store, drop_violations=True).drop_violations


@each_case("text", SAMPLE_QUERIES)
async def test_both_searches_at_once_give_what_each_gives(
    backend: EmbeddedBackend, text: str
) -> None:
    embedding = MODEL.get_query_embedding(text)
    for scope in (None, ACME, GLOBEX):
        search = Search(5, None if scope is None else scope.condition, scope)
        dense = run(plan(backend.dense(embedding, search)))
        keyword = await arun(plan(backend.keyword(text, search)))
        both = backend.hybrid(embedding, text, search, nodes_last=False).function()
        assert (both.vector, both.keyword) == (scored_ids(dense), scored_ids(keyword))
        assert dense
        assert keyword
        for node in (each.node for each in (*dense, *keyword)):
            assert matches(search.condition, node.metadata)


def test_nodes_that_tie_are_ordered_by_id(backend: EmbeddedBackend) -> None:
    embedding = MODEL.get_query_embedding("canteen lunch")
    for found in (
        backend.dense(embedding, Search(2)).function(),
        backend.keyword("doors noon", Search(2)).function(),
    ):
        assert [each.node_id for each in found] == ["acme-lunch", "globex-lunch"]
        assert found[0].score == found[1].score


def test_a_condition_the_engine_cannot_evaluate_is_refused_before_anything_is_asked(
    backend: EmbeddedBackend,
) -> None:
    search = Search(3, Compare("year", FilterOperator.GT, 2**60))
    with pytest.raises(UnsupportedFilterError):
        backend.dense([1.0], search)
    with pytest.raises(UnsupportedFilterError):
        backend.keyword("leave", search)
    with pytest.raises(UnsupportedFilterError):
        backend.hybrid([1.0], "leave", search, nodes_last=True)


def test_it_describes_itself(backend: EmbeddedBackend) -> None:
    about = backend.describe()
    assert about["engine"] == "embedded"
    assert about["nodes"] == 12
    assert about["distance"] == "cosine"
    assert about["path"] == ":memory:"
