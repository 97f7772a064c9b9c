"""The engines side by side: a store on each, filled alike, gone after the test."""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.stores.open import backend_for
from tests.servers import qdrant
from tests.servers.given import collection_url

_CLIENTS = {"qdrant": "qdrant_client", "milvus": "pymilvus", "elasticsearch": "elasticsearch"}


@contextmanager
def filled(
    engine: str,
    nodes: Sequence[BaseNode],
    *,
    request: pytest.FixtureRequest,
    folder: Path,
    **settings: Any,
) -> Iterator[Backend]:
    """The backend of an engine with these nodes; skips the test where its client is missing.

    Args:
        engine: ``embedded``, ``qdrant``, ``milvus`` or ``elasticsearch``.
        nodes: What is in it; they are copied.
        request: Of a test or fixture that can have ``elasticsearch_url`` and ``qdrant_url``.
        folder: For what lies in files.
        settings: How the store is opened.
    """
    if engine == "embedded":
        store: Any = EmbeddedVectorStore(":memory:", **settings)
    else:
        pytest.importorskip(_CLIENTS[engine])
        opening = import_module(f"llama_retrieval_ext.stores.{engine}.store")
        store = getattr(opening, f"open_{engine}")(_url(engine, request, folder), **settings)
    with store:
        store.add([node.model_copy(deep=True) for node in nodes])
        yield backend_for(store)
        if engine != "embedded":
            store.clear()


def _url(engine: str, request: pytest.FixtureRequest, folder: Path) -> str:
    name = f"t{uuid.uuid4().hex}"
    if engine == "qdrant" and os.environ.get(qdrant.URL_VARIABLE):
        return collection_url(request.getfixturevalue("qdrant_url"), name)
    if engine == "elasticsearch":
        base: str = request.getfixturevalue("elasticsearch_url")
        return f"{base.replace('http', 'elasticsearch', 1)}/{name}"
    return "qdrant::memory:" if engine == "qdrant" else f"milvus:{folder}/{name}.db"
