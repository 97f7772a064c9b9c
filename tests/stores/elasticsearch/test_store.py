"""The promises of every store, on a real server."""

from collections.abc import Iterator
from typing import Any

import pytest

from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore
from tests.stores.elasticsearch.msearch import Opener
from tests.stores.store_contract import StoreContract

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(open_store: Opener) -> Iterator[Opener]:
    """Opens one index, as often as needed."""
    stores = [open_store()]

    def again(**settings: Any) -> ElasticsearchVectorStore:
        stores.append(open_store(stores[0].index, **settings))
        return stores[-1]

    yield again
    stores[0].clear()


class TestStore(StoreContract[ElasticsearchVectorStore]):
    ranks_zeros = False  # they have no cosine
