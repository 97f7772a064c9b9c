"""A store from the first node to the last, and vectors of any length."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_retrieval_ext.errors import StoreClosedError
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.stores.store_contract import StoreContract


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., EmbeddedVectorStore]]:
    """Opens one directory, as often as needed."""
    stores: list[EmbeddedVectorStore] = []

    def again(**settings: Any) -> EmbeddedVectorStore:
        stores.append(EmbeddedVectorStore(tmp_path / "kb", **settings))
        return stores[-1]

    yield again
    for each in stores:
        each.close()


class TestStore(StoreContract[EmbeddedVectorStore]):
    pass


def test_a_closed_store_describes_nothing(store: EmbeddedVectorStore) -> None:
    store.close()
    for use in (store.describe, store.persist, lambda: store.dimension):
        with pytest.raises(StoreClosedError, match="was closed"):
            use()
