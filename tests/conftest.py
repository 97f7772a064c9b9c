"""What many tests start from."""

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.clients import SkipWithoutClient
from tests.quick import SlowTests, is_async
from tests.servers import neo4j
from tests.servers.given import given_hosts
from tests.servers.once import share_servers
from tests.servers.qdrant import qdrant_url

__all__ = ["qdrant_url"]

if TYPE_CHECKING:
    from llama_index.core.schema import TextNode
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

    from llama_retrieval_ext.testing.fakes import FakeEmbedding
    from tests.searching import Searched

# So that a promise that is broken shows its values.
pytest.register_assert_rewrite("llama_retrieval_ext.testing", "tests.stores", "tests.graph")


def pytest_configure(config: pytest.Config) -> None:
    # To compile 800 modules anew takes 8 s in each worker, and half a second in each subprocess.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Else pytest-asyncio makes Python 3.11 start a loop that nothing closes.
    asyncio.set_event_loop(None)
    config.pluginmanager.register(SkipWithoutClient())
    config.pluginmanager.register(SlowTests(config))
    share_servers(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if hosts := given_hosts():
        for item in items:
            item.add_marker(pytest.mark.allow_hosts(["127.0.0.1", *hosts]))


def pytest_collection_finish(session: pytest.Session) -> None:
    slow = [item for item in session.items if item.get_closest_marker("slow")]
    chosen = any(hasattr(getattr(item, "module", None), "neo4j_url") for item in slow)
    if chosen and not session.config.option.collectonly:
        neo4j.prefetch()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "Scheduling":
    from tests.workers import Files  # noqa: PLC0415 - pytest-xdist may not be installed

    return Files(config, log)


@pytest.fixture
def searched(request: pytest.FixtureRequest) -> "Searched":
    if is_async(request):
        return lambda retriever, query: asyncio.run(retriever.asearch(query))
    return lambda retriever, query: retriever.search(query)


@pytest.fixture
def embed_model() -> "FakeEmbedding":
    # LlamaIndex takes two seconds to import, which tests of formulas and text need not.
    from llama_retrieval_ext.testing.fakes import FakeEmbedding  # noqa: PLC0415

    return FakeEmbedding()


@pytest.fixture
def corpus() -> "list[TextNode]":
    from llama_retrieval_ext.testing.corpus import sample_nodes  # noqa: PLC0415 - as above
    from llama_retrieval_ext.testing.fakes import FakeEmbedding  # noqa: PLC0415

    return sample_nodes(FakeEmbedding())  # a model of its own: tests count the calls of theirs
