"""Nodes that do not fit into Milvus."""

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.milvus.store import MilvusStore
from tests.stores.store_contract import node

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "odd",
    [
        TextNode(id_="odd", text="界" * 30_000, embedding=[1.0, 0.0]),
        TextNode(id_="odd", text="a", metadata={"k": "v" * 70_000}, embedding=[1.0, 0.0]),
        TextNode(id_="odd", text="x y " * 10_000, embedding=[1.0, 0.0]),
        TextNode(id_="odd", text="a", metadata={"tenant_id": "t" * 5000}, embedding=[1.0, 0.0]),
        TextNode(id_="", text="a", embedding=[1.0, 0.0]),
    ],
    ids=["text", "metadata", "terms", "tenant", "id"],
)
def test_a_node_that_does_not_fit_into_milvus_is_refused_by_id(
    store: MilvusStore, odd: TextNode
) -> None:
    with pytest.raises(ConfigurationError, match=r"odd|empty id"):
        store.add([node("a"), odd])
    assert store.count() == 0
