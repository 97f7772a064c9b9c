"""A store has an engine open: it cannot be pickled or copied, and says what to do instead."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import StoreError
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever
from llama_retrieval_ext.stores.open import open_store
from tests.knowledge_base.engines import ENGINES, place, start
from tests.servers.elasticsearch import elasticsearch_url

__all__ = ["elasticsearch_url"]


@pytest.mark.parametrize("again", [pickle.dumps, copy.deepcopy])
@pytest.mark.parametrize("engine", ENGINES)
def test_copies_and_pickles_of_a_store_and_of_its_retriever_are_refused(
    engine: str, again: Callable[[object], object], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    start(engine, request)
    with place(engine, tmp_path, request) as url, open_store(url) as store:
        store.add([TextNode(id_="n", text="leave", embedding=[1.0, 0.0])])
        retriever = KeywordRetriever(store)
        for each in (store, retriever):
            with pytest.raises(StoreError, match=r"open_store\(url\) in the other process"):
                again(each)
        assert [hit.node_id for hit in retriever.retrieve("leave")] == ["n"]
