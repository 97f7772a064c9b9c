"""The promises of every store, on every Qdrant there is."""

import gc
from pathlib import Path

import pytest
from qdrant_client import QdrantClient

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from tests.stores.store_contract import StoreContract, node

pytestmark = pytest.mark.slow


class TestStore(StoreContract[QdrantStore]):
    many = 600


# The client that is refused leaves its lock file open.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_directory_is_shared_within_the_process_and_closed_with_the_last(tmp_path: Path) -> None:
    url = f"qdrant:{tmp_path}/kb"
    with QdrantStore(url) as first, QdrantStore(url) as second:
        first.add([node("a")])
        assert second.count() == 1
        first.close()
        assert second.count() == 1
    client = QdrantClient(path=str(tmp_path / "kb"))
    assert client.count("nodes").count == 1
    assert "another client" in _refusal(url)
    gc.collect()
    client.close()


def _refusal(url: str) -> str:
    try:
        QdrantStore(url)
    except StoreUnavailableError as error:
        return str(error)
    return "none"
