"""Collections that are refused: of another program, of a newer release, of another tokenizer."""

import pytest
from qdrant_client import QdrantClient, models

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError
from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from llama_retrieval_ext.text.tokenizer import Tokenizer

pytestmark = pytest.mark.slow


def test_a_collection_of_somebody_else_is_refused(new_url: str, server: str) -> None:
    vectors = models.VectorParams(size=2, distance=models.Distance.COSINE)
    QdrantClient(server).create_collection(new_url.rpartition("/")[2], vectors)
    with pytest.raises(StoreFormatError, match="not made by this package"):
        QdrantStore(new_url)


def test_a_collection_of_a_newer_release_is_refused(new_url: str, server: str) -> None:
    vectors = {"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)}
    metadata = {"llama_retrieval_ext": {"format": 99}}
    QdrantClient(server).create_collection(new_url.rpartition("/")[2], vectors, metadata=metadata)
    with pytest.raises(StoreFormatError, match="format 99"):
        QdrantStore(new_url)


def test_a_tokenizer_of_another_release_is_named(new_url: str, server: str) -> None:
    vectors = {"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)}
    tokenizer = {**Tokenizer().to_dict(), "stemmer": "new"}
    metadata = {"llama_retrieval_ext": {"format": 5, "tokenizer": tokenizer}}
    QdrantClient(server).create_collection(new_url.rpartition("/")[2], vectors, metadata=metadata)
    with pytest.raises(ConfigurationError, match="recorded by another release"):
        QdrantStore(new_url)
