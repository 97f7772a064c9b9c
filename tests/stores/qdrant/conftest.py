"""Stores on every Qdrant there is; see places.py."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.stores.qdrant.places import PLACES, place

if TYPE_CHECKING:
    from llama_retrieval_ext.stores.qdrant.store import QdrantStore
    from tests.stores.qdrant.fake_server import FakeServer


@pytest.fixture
def fake() -> "Iterator[FakeServer]":
    from tests.stores.qdrant.fake_server import FakeServer, serving  # noqa: PLC0415 - an extra

    with serving(FakeServer()) as server:
        yield server


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a collection that does not exist yet."""
    with place(request.param, tmp_path) as made:
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

    with place(request.param, tmp_path_factory.mktemp("kept")) as url, QdrantStore(url) as store:
        yield store
