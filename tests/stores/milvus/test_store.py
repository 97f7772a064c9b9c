"""The promises of every store, in a file and on a server."""

from collections.abc import Callable

import pytest

from llama_retrieval_ext.stores.milvus.store import MilvusStore
from tests.stores.store_contract import StoreContract

pytestmark = pytest.mark.slow

Opened = Callable[..., MilvusStore]


class TestStore(StoreContract[MilvusStore]):
    odd_ids = tuple(
        node_id for node_id in StoreContract.odd_ids if node_id
    )  # Milvus has no empty id
