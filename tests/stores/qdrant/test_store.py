"""The promises of every store, on every Qdrant there is."""

import gc
from pathlib import Path

import pytest
from qdrant_client import QdrantClient

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.stores.qdrant.store import QdrantBackend, QdrantStore, backend_of
from tests.stores.store_contract import StoreContract, node

pytestmark = pytest.mark.slow


class TestStore(StoreContract[QdrantStore]):
    many = 600

    @pytest.fixture(autouse=True)
    def _memory_is_not_shared(self, url: str) -> None:
        self.reopens = url != "qdrant::memory:"  # type: ignore[misc]


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


def test_the_backend_of_a_store_is_found() -> None:
    with QdrantStore("qdrant::memory:") as store:
        assert isinstance(backend_of(store), QdrantBackend)
