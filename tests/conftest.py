"""What many tests start from."""

from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from llama_index.core.schema import TextNode

    from llama_retrieval_ext.testing.fake_embedding import FakeEmbedding

# A shared machine is slow at times; a test that hangs is ended by pytest-timeout.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

# What starts processes or servers, or compiles: `pytest -m "not slow"` leaves it out.
_SLOW = (
    "tests/cli/",
    "tests/ingest/test_kill",
    "tests/reference/",
    "tests/stores/elasticsearch/",
    "tests/stores/embedded/test_crashes",
    "tests/stores/embedded/test_sharing",
    "tests/stores/milvus/",
    "tests/stores/qdrant/",
    "tests/test_public_api",
    "tests/test_readme",
    "tests/test_typing",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(part in item.path.as_posix() for part in _SLOW):
            item.add_marker(pytest.mark.slow)
        if "tests/stores/qdrant/" in item.path.as_posix():
            # An AsyncQdrantClient whose loop has ended cannot close its sockets.
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


@pytest.fixture
def embed_model() -> "FakeEmbedding":
    # LlamaIndex takes two seconds to import, which tests of formulas and text need not.
    from llama_retrieval_ext.testing.fake_embedding import FakeEmbedding  # noqa: PLC0415

    return FakeEmbedding()


@pytest.fixture
def corpus() -> "list[TextNode]":
    from llama_retrieval_ext.testing.corpus import sample_nodes  # noqa: PLC0415 - as above
    from llama_retrieval_ext.testing.fake_embedding import FakeEmbedding  # noqa: PLC0415

    return sample_nodes(FakeEmbedding())  # a model of its own: tests count the calls of theirs
