"""The engines that a knowledge base is tested on, and a fresh place on each."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from llama_retrieval_ext.stores.open import open_store
from tests.servers import qdrant
from tests.servers.given import collection_url

ENGINES = ["embedded", "qdrant", "milvus", "elasticsearch"]
SERVERS = [engine for engine in ENGINES if engine != "embedded"]
_CLIENTS = {"qdrant": "qdrant_client", "milvus": "pymilvus", "elasticsearch": "elasticsearch"}

# For tests of what only the embedded engine has.
EMBEDDED = pytest.mark.parametrize("engine", ["embedded"], indirect=True)
# For tests of the ledger: one in a file, and one beside the store.
LEDGERS = pytest.mark.parametrize(
    "engine", ["embedded", pytest.param("qdrant", marks=pytest.mark.slow)], indirect=True
)
# For tests of what the ledger beside a store adds.
BESIDE = pytest.mark.parametrize("engine", SERVERS, indirect=True)


def start(engine: str, request: pytest.FixtureRequest) -> None:
    """Start the server that an engine needs, if it does."""
    name = engine.partition("-")[0]
    if name in _CLIENTS:
        pytest.importorskip(_CLIENTS[name])
    fixtures = {
        "elasticsearch": "elasticsearch_url",
        "milvus-server": "milvus_url",
        "qdrant-server": "qdrant_url",
    }
    fixture = fixtures.get(engine)
    if fixture is not None:
        request.getfixturevalue(fixture)


@contextmanager
def place(engine: str, directory: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a knowledge base that is not there yet; what becomes of it is removed."""
    name, _, kind = engine.partition("-")
    collection = f"kb{uuid4().hex}"
    match name:
        case "qdrant" if kind or os.environ.get(qdrant.URL_VARIABLE):
            base = qdrant.by_http(request.getfixturevalue("qdrant_url"))
            url = collection_url(base, collection)
        case "qdrant":
            yield f"qdrant:{directory / 'qdrant'}"
            return
        case "milvus" if not kind:
            yield f"milvus:{directory / 'kb.db'}"
            return
        case "milvus":
            url = collection_url(request.getfixturevalue("milvus_url"), collection)
        case "elasticsearch":
            base = request.getfixturevalue("elasticsearch_url")
            url = f"{base.replace('http', 'elasticsearch', 1)}/{collection}"
        case _:
            yield f"embedded:{directory / 'kb'}"
            return
    yield url
    remove(url)


def remove(url: str) -> None:
    """Remove a collection and the ledger beside it, whatever is in them."""
    store = open_store(url)
    store.beside("__ledger").clear()  # type: ignore[attr-defined]
    store.clear()
    store.close()
