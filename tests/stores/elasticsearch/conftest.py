"""Indices on a real server, each gone after its test."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers.elasticsearch import elasticsearch_url, prefetch

if TYPE_CHECKING:
    from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore
    from tests.stores.elasticsearch.msearch import Opener

__all__ = ["elasticsearch_url"]

# With one server and a copy to keep, an index would never be whole.
ALONE = {"number_of_replicas": 0}


def pytest_collection_finish(session: pytest.Session) -> None:
    here = Path(__file__).parent
    chosen = any(item.path.is_relative_to(here) for item in session.items)
    if chosen and not session.config.option.collectonly:
        prefetch()


@pytest.fixture(scope="session")
def base_url(elasticsearch_url: str) -> str:
    """What goes before the name of an index."""
    return elasticsearch_url.replace("https://", "elasticsearchs://").replace(
        "http://", "elasticsearch://"
    )


@pytest.fixture(scope="module")
def open_store(base_url: str) -> "Iterator[Opener]":
    """Opens stores that are cleared and closed after the tests of the module."""
    from llama_retrieval_ext.stores.elasticsearch.store import open_elasticsearch  # noqa: PLC0415

    opened: list[ElasticsearchVectorStore] = []

    def open_(index: str | None = None, **options: Any) -> "ElasticsearchVectorStore":
        params = {**ALONE, **options.pop("store_params", {})}
        name = index or f"lre-{uuid.uuid4().hex}"
        opened.append(open_elasticsearch(f"{base_url}/{name}", store_params=params, **options))
        return opened[-1]

    yield open_
    for store in opened:
        if not store.transport.closed:
            store.clear()
        store.close()


@pytest.fixture
def store(open_store: "Opener") -> "Iterator[ElasticsearchVectorStore]":
    with open_store() as opened:
        yield opened
        if not opened.transport.closed:
            opened.clear()
