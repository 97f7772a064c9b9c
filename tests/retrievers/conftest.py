"""A store with the sample nodes, which nobody writes to."""

from collections.abc import Iterator

import pytest

from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding, sample_nodes


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as opened:
        opened.add(sample_nodes(FakeEmbedding()))
        yield opened
