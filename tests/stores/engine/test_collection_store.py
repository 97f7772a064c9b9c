"""A store in one of several collections of an engine."""

from pathlib import Path

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import StoreClosedError
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore
from llama_retrieval_ext.stores.open import open_store
from tests.knowledge_base.engines import SERVERS, place, start
from tests.servers.elasticsearch import elasticsearch_url

__all__ = ["elasticsearch_url"]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("engine", SERVERS)
def test_a_store_beside_another_has_its_own_nodes_and_is_closed_with_it(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    start(engine, request)
    with place(engine, tmp_path, request) as url, open_store(url) as store:
        assert isinstance(store, CollectionStore)
        records = store.beside("__ledger")
        records.add([TextNode(id_="record", text="leave", embedding=[1.0, 0.0])])
        assert (records.count(), store.count()) == (1, 0)
        records.clear()
        records.close()
        with pytest.raises(StoreClosedError):
            store.count()
