"""Collections that are refused: of another program, of a newer release, of another tokenizer."""

import pytest
from qdrant_client import models

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError
from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.stores.qdrant.fake_server import FakeServer

pytestmark = pytest.mark.slow


def test_a_collection_of_somebody_else_is_refused(fake: FakeServer) -> None:
    fake.client.create_collection(
        "kb", models.VectorParams(size=2, distance=models.Distance.COSINE)
    )
    with pytest.raises(StoreFormatError, match="not made by this package"):
        QdrantStore(f"qdrant://{fake.host}/kb")


def test_a_collection_of_a_newer_release_is_refused(fake: FakeServer) -> None:
    vectors = {"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)}
    metadata = {"llama_retrieval_ext": {"format": 99}}
    fake.client.create_collection("kb", vectors, metadata=metadata)
    with pytest.raises(StoreFormatError, match="format 99"):
        QdrantStore(f"qdrant://{fake.host}/kb")


def test_a_tokenizer_of_another_release_is_named(fake: FakeServer) -> None:
    vectors = {"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)}
    tokenizer = {**Tokenizer().to_dict(), "stemmer": "new"}
    metadata = {"llama_retrieval_ext": {"format": 4, "tokenizer": tokenizer}}
    fake.client.create_collection("kb", vectors, metadata=metadata)
    with pytest.raises(ConfigurationError, match="recorded by another release"):
        QdrantStore(f"qdrant://{fake.host}/kb")
