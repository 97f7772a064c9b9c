"""What the features of a backend promise."""

import pytest
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.stores.engine.backend import hybrid_backend
from llama_retrieval_ext.stores.open import source_of
from llama_retrieval_ext.testing.fakes import FakeEmbedding


def test_features_without_their_methods_are_an_error_that_names_the_protocol() -> None:
    index = VectorStoreIndex([TextNode(text="leave")], embed_model=FakeEmbedding())
    backend = source_of(index).backend
    with pytest.raises(UnsupportedModeError, match=r"GenericBackend .* implement HybridBackend"):
        hybrid_backend(backend)
