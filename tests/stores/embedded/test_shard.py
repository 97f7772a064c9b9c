"""The shards in a store directory: which counts after a crash, and when the old one is closed."""

from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from qdrant_edge import EdgeShard

from llama_retrieval_ext.stores.embedded.files import write_config
from llama_retrieval_ext.stores.embedded.shard import close_shard
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.stores.embedded.test_nodes import answers, node, shards, store

__all__ = ["store"]


@pytest.mark.slow
def test_after_a_crash_during_compaction_one_shard_counts_and_the_others_are_removed(
    store: EmbeddedVectorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = answers(store)
    with monkeypatch.context() as patched:
        # The process dies between the manifest and the removal of what was there before.
        patched.setattr(
            "llama_retrieval_ext.stores.embedded.directory.remove_shard", lambda *_: None
        )
        store.compact()
    store.close()
    (tmp_path / "s" / "shard-2").mkdir()
    assert {"shard", "shard-1", "shard-2"} <= set(shards(store))
    with EmbeddedVectorStore(tmp_path / "s") as again:
        assert (answers(again), shards(again)) == (before, ["shard-1"])


@pytest.mark.slow
def test_a_compaction_interrupted_after_the_manifest_loses_nothing(
    store: EmbeddedVectorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = answers(store)

    def interrupted(*args: Any) -> None:
        write_config(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("llama_retrieval_ext.stores.embedded.directory.write_config", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.compact()
    assert (answers(store), shards(store)) == (before, ["shard-1"])
    store.add([node(1)])
    store.close()
    with EmbeddedVectorStore(tmp_path / "s") as again:
        assert again.count() == 51
        again.delete_nodes(["n1"])
        assert answers(again) == before


@pytest.mark.slow
def test_the_old_shard_is_closed_after_the_new_one_is_in_use(store: EmbeddedVectorStore) -> None:
    old = store.client
    assert isinstance(old, EdgeShard)
    store.compact()
    assert store.client is not old
    with pytest.raises(Exception, match="not initialized"):
        old.info()


def test_a_crash_between_manifest_and_shard_leaves_an_empty_store(tmp_path: Path) -> None:
    EmbeddedVectorStore(tmp_path / "s", dim=2).close()
    (tmp_path / "s" / "shard").rename(tmp_path / "gone")
    (tmp_path / "s" / "store.json.closed").unlink()
    with EmbeddedVectorStore(tmp_path / "s") as store:
        assert (store.count(), store.dimension) == (0, 2)
        store.add([TextNode(id_="a", text="leave", embedding=[1.0, 0.0])])
        assert store.count() == 1


class _Borrowed:
    """A shard that other threads call when it is closed for the first time."""

    def __init__(self, error: Exception) -> None:
        self.errors, self.is_closed = [error, error], False

    def close(self) -> None:
        if self.errors:
            raise self.errors.pop()
        self.is_closed = True


def test_a_shard_is_closed_after_the_calls_of_other_threads() -> None:
    shard = _Borrowed(RuntimeError("Already borrowed"))
    close_shard(shard)  # type: ignore[arg-type]
    assert shard.is_closed
