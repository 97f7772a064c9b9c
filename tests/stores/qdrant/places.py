"""Every Qdrant there is to test on: local mode, and a server over HTTP and gRPC.

Each store has a collection of its own, which is removed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.servers.given import collection_url
from tests.servers.qdrant import by_grpc, by_http

# In memory local mode is what it is in files.
PLACES = ["path", "http", "grpc"]


@contextmanager
def place(kind: str, directory: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a collection that does not exist yet."""
    if kind == "path":
        yield f"qdrant:{directory}/qdrant"
        return
    from llama_retrieval_ext.stores.qdrant.client import QdrantConnection, parse_address  # noqa: PLC0415 - an extra

    server: str = request.getfixturevalue("qdrant_url")
    base = by_http(server) if kind == "http" else by_grpc(server)
    url = collection_url(base, f"test-{uuid4().hex}")
    yield url
    connection = QdrantConnection.of_address(parse_address(by_http(url)))
    connection.client.delete_collection(parse_address(url).collection)  # whoever made it
    connection.close()
