"""What many tests start from."""

import asyncio
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.clients import SkipWithoutClient
from tests.servers.given import given_hosts

if TYPE_CHECKING:
    from llama_index.core.schema import TextNode

    from llama_retrieval_ext.testing.fake_embedding import FakeEmbedding
    from tests.searching import Searched

# A shared machine is slow at times; a test that hangs is ended by pytest-timeout.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

# What starts processes or servers, compiles, or takes seconds to try much: `pytest -m "not slow"`
# leaves it out.
_SLOW = (
    "tests/basic/test_bm25_changes.py::test_readers_see_whole_changes",
    "tests/cli/",
    "tests/composite/test_llm_over_http",
    "tests/composite/test_threads.py::test_eight_threads",
    "tests/ingest/test_copying",
    "tests/ingest/test_crashes",
    "tests/ingest/test_kill",
    "tests/ingest/test_servers",
    "tests/ingest/test_together",
    "tests/ingest/test_where_it_runs",
    "tests/reference/",
    "tests/stores/elasticsearch/",
    "tests/stores/embedded/test_conditions.py::test_the_engine_agrees_on_any_metadata",
    "tests/stores/embedded/test_conditions.py::test_the_engine_finds_what_matches_among_many",
    "tests/stores/embedded/test_crashes",
    "tests/stores/embedded/test_sharing",
    "tests/stores/embedded/test_threads",
    "tests/stores/milvus/",
    "tests/stores/qdrant/",
    "tests/stores/test_engines_agree",
    "tests/stores/test_grouping",
    "tests/stores/test_hybrid_edges",
    "tests/stores/test_native_fusion",
    "tests/test_public_api",
    "tests/test_readme",
    "tests/test_typing",
    "tests/text/test_hostile_text.py::test_hostile_text_is_cut_in_linear_time",
)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SkipWithoutClient())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    hosts = given_hosts()
    for item in items:
        if item.nodeid.startswith(_SLOW):
            item.add_marker(pytest.mark.slow)
        if hosts:
            item.add_marker(pytest.mark.allow_hosts(["127.0.0.1", *hosts]))


@pytest.fixture(params=["sync", "async"])
def searched(request: pytest.FixtureRequest) -> "Searched":
    if request.param == "sync":
        return lambda retriever, query: retriever.search(query)
    return lambda retriever, query: asyncio.run(retriever.asearch(query))


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
