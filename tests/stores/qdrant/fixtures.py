"""Stores on every Qdrant there is; see places.py."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from tests.stores.qdrant.fake_server import FakeServer, serving
from tests.stores.qdrant.places import PLACES, place

Open: TypeAlias = Callable[..., QdrantStore]  # whatever settings a store has


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with serving(FakeServer()) as server:
        yield server


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a collection that does not exist yet."""
    with place(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def opened(url: str) -> Iterator[Open]:
    """Opens stores at the URL, and closes them all."""
    stores: list[QdrantStore] = []

    def open_(**settings: Any) -> QdrantStore:
        stores.append(QdrantStore(url, **settings))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Open) -> QdrantStore:
    return opened()


# In memory local mode is what it is in files.
@pytest.fixture(scope="module", params=[kind for kind in PLACES if kind != "memory"])
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[QdrantStore]:
    """A store that the tests of a module share."""
    with place(request.param, tmp_path_factory.mktemp("kept")) as url, QdrantStore(url) as store:
        yield store
