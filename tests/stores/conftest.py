"""A store in memory, and nodes to put into it."""

from collections.abc import Iterator

import pytest

from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore


@pytest.fixture
def store() -> Iterator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as opened:
        yield opened
