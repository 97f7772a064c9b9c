"""Every Qdrant there is to test on: local mode, its client over HTTP, and a server if one is named.

``LLAMA_RETRIEVAL_QDRANT_URL`` names a server, as ``http://host:6333``, or
``qdrant://host:6333?api_key_env=NAME`` for one that asks for a key; each store has a collection of
its own there, which is removed. The package registries have no server to start here.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from tests.servers.given import collection_url, given_server, reachable

URL_VARIABLE = "LLAMA_RETRIEVAL_QDRANT_URL"
# In memory local mode is what it is in files.
PLACES = ["path", "http", *(["server"] if os.environ.get(URL_VARIABLE) else [])]


@contextmanager
def place(kind: str, directory: Path) -> Iterator[str]:
    """The URL of a collection that does not exist yet."""
    name = f"test-{uuid4().hex}"
    match kind:
        case "path":
            yield f"qdrant:{directory}/qdrant"
        case "http":
            from tests.stores.qdrant.fake_server import FakeServer, serving  # noqa: PLC0415 - an extra

            with serving(FakeServer()) as fake:
                yield f"qdrant://{fake.host}/{name}"
        case _:
            from llama_retrieval_ext.stores.qdrant.store import QdrantStore  # noqa: PLC0415 - an extra

            server = reachable(URL_VARIABLE, given_server(URL_VARIABLE, "qdrant"))
            url = collection_url(server, name)
            yield url
            with QdrantStore(url) as store:
                store.clear()
