"""What a store of any engine refuses, on the embedded one."""

import copy
import math
import pickle
from collections.abc import Callable

import pytest
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilters

from llama_retrieval_ext.errors import (
    ConfigurationError,
    InvalidFilterError,
    RetrievalExtError,
    StoreError,
    UnsupportedModeError,
)
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.stores.store_contract import MODES, found, ids, node, where


def test_deleting_without_a_target_is_refused(store: EmbeddedVectorStore) -> None:
    store.add([node("a")])
    with pytest.raises(ConfigurationError, match=r"to empty the store call clear\(\)"):
        store.delete_nodes()
    with pytest.raises(ConfigurationError, match="needs the id of a document"):
        store.delete("")
    with pytest.raises(InvalidFilterError, match="empty group"):
        store.delete_nodes(filters=MetadataFilters(filters=[]))
    nothing = MetadataFilters(filters=where("k", 1).filters, condition=None)
    with pytest.raises(InvalidFilterError, match="condition=None"):
        store.delete_nodes(filters=nothing)
    with pytest.raises(ConfigurationError, match="no options shard"):
        store.delete("a.md", shard=1)
    with pytest.raises(ConfigurationError, match="add has no options batch_size"):
        store.add([node("b")], batch_size=3)
    assert ids(store) == ["a"]


def test_an_invalid_query_is_refused(store: EmbeddedVectorStore) -> None:
    store.add([node("a", k=1)])
    for mode in (MODES.SVM, MODES.SEMANTIC_HYBRID):
        with pytest.raises(UnsupportedModeError, match="serves DEFAULT, SPARSE"):
            found(store, mode)
    for options, reason in (
        ({"query_embedding": None}, "needs a query_embedding"),
        ({"query_embedding": None, "mode": MODES.HYBRID}, "needs a query_embedding"),
        ({"query_str": None, "mode": MODES.SPARSE}, "needs a query_str"),
        ({"query_str": None, "mode": MODES.HYBRID}, "needs a query_str"),
        ({"query_embedding": [math.nan, 1.0]}, "not finite"),
        ({"query_embedding": [1.0]}, r"dimension 1, "),
        ({"similarity_top_k": 0}, "at least 1"),
        ({"alpha": 2.0, "mode": MODES.HYBRID}, "alpha must be between"),
        ({"output_fields": ["node"]}, "no output_fields"),
        ({"filters": MetadataFilters(filters=[])}, "empty group"),
        ({"filters": where("k", None)}, "k"),
        ({"filters": where("k", "a,b", FilterOperator.IN)}, "k"),
    ):
        with pytest.raises(RetrievalExtError, match=reason):
            found(store, **options)


@pytest.mark.parametrize("again", [pickle.dumps, copy.deepcopy])
def test_copies_and_pickles_of_a_store_and_of_its_retriever_are_refused(
    store: EmbeddedVectorStore, again: Callable[[object], object]
) -> None:
    store.add([node("n")])
    retriever = KeywordRetriever(store)
    for each in (store, retriever):
        with pytest.raises(StoreError, match=r"open_store\(url\) in the other process"):
            again(each)
    assert [hit.node_id for hit in retriever.retrieve("leave")] == ["n"]
