"""`EmbeddedBackend`, as an example of a backend over an engine."""

import pytest
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import Compare
from llama_retrieval_ext.stores.embedded.store import EmbeddedBackend, EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.backend import Search


def test_a_condition_that_the_engine_cannot_evaluate_is_refused_before_any_request(
    store: EmbeddedVectorStore,
) -> None:
    backend = EmbeddedBackend(store)
    search = Search(3, Compare("year", FilterOperator.GT, 2**60))
    with pytest.raises(UnsupportedFilterError):
        backend.dense([1.0], search)
    with pytest.raises(UnsupportedFilterError):
        backend.hybrid([1.0], "leave", search, nodes_last=True)


def test_a_backend_describes_its_store(store: EmbeddedVectorStore) -> None:
    about = EmbeddedBackend(store).describe()
    expected = {"engine": "embedded", "nodes": 0, "distance": "cosine", "path": ":memory:"}
    assert {key: about[key] for key in expected} == expected
