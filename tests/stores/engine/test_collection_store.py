"""A store in one of several collections of an engine."""

from pathlib import Path

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import StoreClosedError
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore
from llama_retrieval_ext.stores.open import open_store

pytestmark = pytest.mark.slow


def test_a_store_beside_another_has_its_own_nodes_and_is_closed_with_it(tmp_path: Path) -> None:
    pytest.importorskip("qdrant_client")
    with open_store(f"qdrant:{tmp_path}/kb") as store:
        assert isinstance(store, CollectionStore)
        records = store.beside("__ledger")
        records.add([TextNode(id_="record", text="leave", embedding=[1.0, 0.0])])
        assert (records.count(), store.count()) == (1, 0)
        records.clear()
        records.close()
        with pytest.raises(StoreClosedError):
            store.count()
