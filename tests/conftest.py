"""What many tests start from."""

from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.servers.given import given_hosts

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
    hosts = given_hosts()
    for item in items:
        if any(part in item.path.as_posix() for part in _SLOW):
            item.add_marker(pytest.mark.slow)
        if hosts and "tests/stores/" in item.path.as_posix():
            item.add_marker(pytest.mark.allow_hosts(["127.0.0.1", *hosts]))


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
