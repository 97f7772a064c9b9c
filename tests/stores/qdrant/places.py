"""Every Qdrant there is to test on: local mode, its client over HTTP, and a server if one is named.

``LLAMA_RETRIEVAL_QDRANT_URL`` names a server, as ``qdrant://host:6333``; each store has a
collection of its own there, which is removed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from tests.stores.qdrant.fake_server import FakeServer, serving

SERVER = os.environ.get("LLAMA_RETRIEVAL_QDRANT_URL", "").rstrip("/")
PLACES = ["memory", "path", "http", *(["server"] if SERVER else [])]


@contextmanager
def place(kind: str, directory: Path) -> Iterator[str]:
    """The URL of a collection that does not exist yet."""
    name = f"test-{uuid4().hex}"
    match kind:
        case "memory":
            yield "qdrant::memory:"
        case "path":
            yield f"qdrant:{directory}/qdrant"
        case "http":
            with serving(FakeServer()) as fake:
                yield f"qdrant://{fake.host}/{name}"
        case _:
            base, _, options = SERVER.partition("?")
            url = f"{base}/{name}" + (f"?{options}" if options else "")
            yield url
            with QdrantStore(url) as store:
                store.clear()
