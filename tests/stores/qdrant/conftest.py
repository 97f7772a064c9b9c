"""Every Qdrant there is to test on: local mode, and a server over HTTP and gRPC.

Each store has a collection of its own, which is removed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.quick import in_turn
from tests.servers import qdrant
from tests.servers.given import collection_url
from tests.servers.qdrant import by_grpc, by_http

if TYPE_CHECKING:
    from llama_retrieval_ext.stores.qdrant.store import QdrantStore


KEY = "s3cret-key"
# In memory local mode is what it is in files.
PLACES = in_turn("path", "http", "grpc")


@contextmanager
def place(kind: str, directory: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a collection that does not exist yet."""
    if kind == "path":
        yield f"qdrant:{directory}/qdrant"
        return
    from llama_retrieval_ext.stores.qdrant.client import QdrantConnection, parse_address  # noqa: PLC0415 - an extra

    server: str = request.getfixturevalue("qdrant_url")
    base = by_http(server) if kind == "http" else by_grpc(server)
    url = collection_url(base, f"test-{uuid4().hex}")
    yield url
    connection = QdrantConnection.of_address(parse_address(by_http(url)))
    connection.client.delete_collection(parse_address(url).collection)  # whoever made it
    connection.close()


@pytest.fixture(scope="session")
def keyed_url() -> Iterator[str]:
    """The base URL, by HTTP, of a server that asks for `KEY`."""
    qdrant.require_binary()
    server = qdrant.start(key=KEY)
    yield qdrant.by_http(server.url)
    server.stop()


@pytest.fixture
def server(qdrant_url: str) -> str:
    """The server as Qdrant's client takes it."""
    return qdrant.http_address(qdrant_url)


@pytest.fixture
def new_url(qdrant_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL, by HTTP, of a collection that does not exist yet."""
    with place("http", tmp_path, request) as made:
        yield made


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a collection that does not exist yet."""
    with place(request.param, tmp_path, request) as made:
        yield made


@pytest.fixture
def opened(url: str) -> "Iterator[Callable[..., QdrantStore]]":
    """Opens stores at the URL, and closes them all."""
    from llama_retrieval_ext.stores.qdrant.store import QdrantStore  # noqa: PLC0415 - an extra

    stores: list[QdrantStore] = []

    def open_(**settings: Any) -> "QdrantStore":
        stores.append(QdrantStore(url, **settings))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: "Callable[..., QdrantStore]") -> "QdrantStore":
    return opened()


@pytest.fixture(scope="module", params=PLACES)
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[QdrantStore]":
    """A store that the tests of a module share."""
    from llama_retrieval_ext.stores.qdrant.store import QdrantStore  # noqa: PLC0415 - an extra

    folder = tmp_path_factory.mktemp("kept")
    with place(request.param, folder, request) as url, QdrantStore(url) as store:
        yield store
