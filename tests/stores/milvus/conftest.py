"""Stores in files of Milvus Lite and on a server, and nodes to put into them."""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers.given import collection_url
from tests.servers.milvus import URL_VARIABLE, milvus_url

if TYPE_CHECKING:
    from llama_retrieval_ext.stores.milvus.store import MilvusStore

__all__ = ["milvus_url"]


# Milvus Lite is the same in a file and as a server; a user's own server is not.
PLACES = ["file", "server"] if URL_VARIABLE in os.environ else ["file"]


@pytest.fixture
def store(tmp_path: Path) -> "Iterator[MilvusStore]":
    from llama_retrieval_ext.stores.milvus.store import open_milvus  # noqa: PLC0415 - an extra

    with open_milvus(f"milvus:{tmp_path}/kb.db") as opened:
        yield opened


@contextmanager
def place(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The URL of a new collection, which is removed in the end."""
    from llama_retrieval_ext.stores.milvus.store import open_milvus  # noqa: PLC0415 - as above

    url = f"milvus:{folder}/kb.db"
    if kind == "server":
        url = collection_url(request.getfixturevalue("milvus_url"), f"t{uuid.uuid4().hex}")
    yield url
    with open_milvus(url) as last:
        last.clear()


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with place(request.param, request, tmp_path) as made:
        yield made


@pytest.fixture
def opened(url: str) -> "Iterator[Callable[..., MilvusStore]]":
    """Opens that collection, as often as needed."""
    from llama_retrieval_ext.stores.milvus.store import open_milvus  # noqa: PLC0415 - as above

    stores: list[MilvusStore] = []

    def again(**settings: object) -> "MilvusStore":
        stores.append(open_milvus(url, **settings))  # type: ignore[arg-type]
        return stores[-1]

    yield again
    for each in stores:
        each.close()
