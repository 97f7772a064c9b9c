"""`EmbeddedBackend`, as an example of a backend over an engine."""

from collections.abc import Iterator

import pytest
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import Compare
from llama_retrieval_ext.stores.embedded.store import EmbeddedBackend, EmbeddedVectorStore
from llama_retrieval_ext.stores.encoding.vectors import ScoreRange
from llama_retrieval_ext.stores.engine.backend import Backend, Search
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding

MODEL = FakeEmbedding()


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    """Over a store that the tests only read."""
    with EmbeddedVectorStore(":memory:") as store:
        store.add(sample_nodes(MODEL))
        yield EmbeddedBackend(store)


def test_a_backend_declares_the_features_of_its_engine(backend: EmbeddedBackend) -> None:
    kept: Backend = backend
    assert kept.features.dense == ScoreRange("cosine", -1.0, 1.0)
    assert kept.features.keyword == ScoreRange("bm25", 0.0, None)
    assert kept.features.one_round_trip
    assert kept.features.mmr
    assert not kept.features.real_async
    assert not kept.drop_violations
    assert EmbeddedBackend(backend.store, drop_violations=True).drop_violations


def test_a_condition_that_the_engine_cannot_evaluate_is_refused_before_any_request(
    backend: EmbeddedBackend,
) -> None:
    search = Search(3, Compare("year", FilterOperator.GT, 2**60))
    with pytest.raises(UnsupportedFilterError):
        backend.dense([1.0], search)
    with pytest.raises(UnsupportedFilterError):
        backend.keyword("leave", search)
    with pytest.raises(UnsupportedFilterError):
        backend.hybrid([1.0], "leave", search, nodes_last=True)


def test_a_backend_describes_its_store(backend: EmbeddedBackend) -> None:
    about = backend.describe()
    assert about["engine"] == "embedded"
    assert about["nodes"] == 12
    assert about["distance"] == "cosine"
    assert about["path"] == ":memory:"
