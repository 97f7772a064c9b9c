"""The promises of every store, in a file and on a server; the limit of hits, and terms."""

from collections.abc import Callable

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.milvus.store import MilvusStore
from tests.stores.store_contract import MODES, StoreContract, found, node

pytestmark = pytest.mark.slow

Opened = Callable[..., MilvusStore]


class TestStore(StoreContract[MilvusStore]):
    odd_ids = tuple(
        node_id for node_id in StoreContract.odd_ids if node_id
    )  # Milvus has no empty id


def test_more_hits_than_milvus_returns_are_refused(store: MilvusStore) -> None:
    store.add([node("a")])
    assert found(store, similarity_top_k=16_384) == ["a"]
    with pytest.raises(ConfigurationError, match="16384"):
        found(store, similarity_top_k=16_385)


def test_terms_with_punctuation_are_found(store: MilvusStore) -> None:
    store.add(
        [
            TextNode(id_="c", text="C++ by example", embedding=[1.0, 0.0]),
            TextNode(id_="d", text="D by example", embedding=[1.0, 0.0]),
        ]
    )
    assert found(store, MODES.SPARSE, query_str="c++") == ["c"]
