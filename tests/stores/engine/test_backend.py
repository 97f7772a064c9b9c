"""What the features of a backend promise."""

import pytest
from llama_index.core.vector_stores.simple import SimpleVectorStore

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.stores.engine.backend import hybrid_backend
from llama_retrieval_ext.stores.generic import GenericBackend


def test_features_without_their_methods_are_an_error_that_names_the_protocol() -> None:
    with pytest.raises(UnsupportedModeError, match="GenericBackend .* implement HybridBackend"):
        hybrid_backend(GenericBackend(SimpleVectorStore()))
