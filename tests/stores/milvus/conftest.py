"""Stores in files of Milvus Lite and on a server, and nodes to put into them."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers.given import collection_url
from tests.servers.milvus import milvus_url

if TYPE_CHECKING:
    from llama_retrieval_ext.stores.milvus.store import MilvusStore

__all__ = ["milvus_url"]


@pytest.fixture
def store(tmp_path: Path) -> "Iterator[MilvusStore]":
    from llama_retrieval_ext.stores.milvus.store import open_milvus  # noqa: PLC0415 - an extra

    with open_milvus(f"milvus:{tmp_path}/kb.db") as opened:
        yield opened


@pytest.fixture(params=["file", "server"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new collection: in a file, and on a server."""
    if request.param == "file":
        return f"milvus:{tmp_path}/kb.db"
    return collection_url(request.getfixturevalue("milvus_url"), f"t{uuid.uuid4().hex}")


@pytest.fixture
def opened(url: str) -> "Iterator[Callable[..., MilvusStore]]":
    """Opens that collection, as often as needed; it is removed in the end."""
    from llama_retrieval_ext.stores.milvus.store import open_milvus  # noqa: PLC0415 - as above

    stores: list[MilvusStore] = []

    def again(**settings: object) -> "MilvusStore":
        stores.append(open_milvus(url, **settings))  # type: ignore[arg-type]
        return stores[-1]

    yield again
    for each in stores:
        each.close()
    with open_milvus(url) as last:
        last.clear()
