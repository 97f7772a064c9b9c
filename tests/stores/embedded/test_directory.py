"""Store directories: what is refused, and what a crash leaves."""

import errno
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from qdrant_edge import EdgeShard, Filter, UpdateOperation

from llama_retrieval_ext.errors import (
    DimensionMismatchError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.stores.embedded.test_store import NODES, elsewhere


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_a_store_opened_with_a_dimension_has_its_shard_and_its_folders(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "new" / "s", dim=2) as store:
        assert store.client is not None
        with pytest.raises(DimensionMismatchError, match=r"dimension 3, .* takes 2"):
            store.add([TextNode(embedding=[1.0, 0.0, 0.0])])
    EmbeddedVectorStore(tmp_path / "new" / "s", dim=2).close()


def test_an_empty_store_takes_other_settings(tmp_path: Path) -> None:
    german = Tokenizer(language="german")
    EmbeddedVectorStore(tmp_path / "s", distance="dot").close()
    with EmbeddedVectorStore(tmp_path / "s", tokenizer=german, distance="euclid") as store:
        assert (store.tokenizer, store.distance) == (german, "euclid")
        store.add(NODES)
        store.clear()
    with EmbeddedVectorStore(tmp_path / "s", tokenizer=Tokenizer(), distance="cosine") as store:
        assert (store.tokenizer, store.distance) == (Tokenizer(), "cosine")


def test_a_directory_with_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "thesis.txt"
    other.write_text("years of work")
    with pytest.raises(StoreFormatError, match=r"thesis\.txt.*choose an empty directory"):
        EmbeddedVectorStore(tmp_path)
    assert names(tmp_path) == ["thesis.txt"]
    other.unlink()
    EmbeddedVectorStore(tmp_path).close()  # it is not taken for open


def test_leftovers_of_a_crash_are_removed_when_the_store_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "s"
    EmbeddedVectorStore(path).close()
    for left in ("shard.new", "shard.old", "shard"):
        (path / left).mkdir()
        (path / left / "half").write_text("a shard")
    (path / "store.json.new").write_text("{")
    with EmbeddedVectorStore(path) as store:
        store.add(NODES)
        assert store.count() == 2
    kept = {"freeze", "lock", "shard", "store.json", "store.json.closed"}
    assert {*names(path)} - {"reserve"} == kept


def test_a_full_disk_gives_the_reserve_to_a_deletion_and_to_no_addition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedVectorStore(tmp_path / "s", min_free_bytes=0) as store:
        store.add(NODES)
        reserve = tmp_path / "s" / "reserve"
        reserve.touch()  # there is none in memory
        monkeypatch.setattr(
            "shutil.disk_usage", lambda _: SimpleNamespace(free=0 if reserve.exists() else 2**23)
        )
        with pytest.raises(StoreUnavailableError, match=r"make room\. What"):
            store.add(NODES)
        with pytest.raises(StoreUnavailableError, match="MB are needed"):
            store.compact()
        assert reserve.exists()
        store.check_room([])  # as before a knowledge base writes its journal
        assert not reserve.exists()


@pytest.mark.slow
def test_with_the_log_alone_nothing_is_lost_that_was_written_since_a_flush(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(NODES[:1])
        store._directory.flush()
        shutil.copytree(tmp_path / "s", tmp_path / "crashed")
        store.add(NODES[1:])
        store.delete_nodes(["a"])
        store.persist()  # only the log is on the disk when the machine dies
        log = tmp_path / "crashed" / "shard" / "wal"
        shutil.rmtree(log)
        shutil.copytree(tmp_path / "s" / "shard" / "wal", log)
    with EmbeddedVectorStore(tmp_path / "crashed") as store:
        assert [node.node_id for node in store.get_nodes()] == ["b"]
        assert store.query(VectorStoreQuery(query_embedding=[0.0, 1.0])).ids == ["b"]


def test_a_store_without_nodes_can_be_persisted_after_a_deletion(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.delete_nodes(["a"])  # as after a crash before the first node was written
        store.persist()
        store.add(NODES)
        store.clear()
        store.delete("b")
        store.persist()
        assert store.count() == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems flush the whole shard")
def test_what_a_killed_process_wrote_is_persisted_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(NODES)
        shutil.copytree(tmp_path / "s", tmp_path / "killed")
    synced: list[Path] = []
    monkeypatch.setattr("llama_retrieval_ext.stores.embedded.directory.sync_log", synced.append)
    with EmbeddedVectorStore(tmp_path / "killed") as store:
        for _ in range(2):
            store.persist()
            assert synced == [tmp_path / "killed" / "shard"]


class BrokenDisk:
    """In place of ``os.fsync``: fails while it is broken, and remembers what was written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_broken, self.written = False, list[Path]()
        monkeypatch.setattr("os.fsync", self.fsync)

    def fsync(self, descriptor: int) -> None:
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")
        if sys.platform == "linux":
            self.written.append(Path(f"/proc/self/fd/{descriptor}").readlink())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems flush the whole shard")
def test_after_a_write_that_did_not_reach_the_disk_a_store_is_only_searched_until_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = BrokenDisk(monkeypatch)
    nearest = VectorStoreQuery(query_embedding=[0.0, 1.0], similarity_top_k=2)
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(NODES)
        disk.is_broken = True
        with pytest.raises(StoreUnavailableError, match="Input/output error"):
            store.persist()
        disk.is_broken = False  # the system reports each error once
        writes: list[Callable[[], object]] = [
            store.persist,
            lambda: store.add(NODES),
            lambda: store.delete_nodes(["a"]),
            store.compact,
            store.build_index,
            lambda: store.check_room([]),  # as before a knowledge base writes its journal
        ]
        for write in writes:
            with pytest.raises(StoreUnavailableError, match="close the store and open it again"):
                write()
        assert sorted(store.query(nearest).ids or []) == ["a", "b"]
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.delete_nodes(["a"])
        store.persist()
        assert store.query(nearest).ids == ["b"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The directory of a closed store with `NODES`."""
    with EmbeddedVectorStore(tmp_path / "source") as store:
        store.add(NODES)
    return tmp_path / "source"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the names of open files from /proc")
@pytest.mark.parametrize("how", ["load", pytest.param("build_index", marks=pytest.mark.slow)])
def test_copied_files_are_on_the_disk_before_the_manifest_names_them(
    how: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(NODES[:1])
        disk = BrokenDisk(monkeypatch)
        store.load(source) if how == "load" else store.build_index()
        before = disk.written[: disk.written.index(tmp_path / "s" / "store.json.new")]
        (shard,) = (tmp_path / "s").glob("shard*")
        copied = {path for path in shard.rglob("*") if path.suffix in {".json", ".dat", ".mmap"}}
        assert copied
        assert copied <= set(before)
        assert disk.written[-1] == tmp_path / "s"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows opens no folders")
def test_a_copy_that_does_not_reach_the_disk_leaves_the_store_as_it_was_and_can_be_repeated(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(NODES[:1])
        disk = BrokenDisk(monkeypatch)
        disk.is_broken = True
        with pytest.raises(StoreUnavailableError, match="Input/output error"):
            store.load(source)
        assert store.count() == 1
        disk.is_broken = False
        store.load(source)
        store.delete_nodes(["a"])
        assert [node.node_id for node in store.get_nodes()] == ["b"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows opens no folders")
def test_a_file_system_that_syncs_no_folders_holds_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr("os.fsync", fsync)
    with EmbeddedVectorStore(tmp_path / "source") as source:
        source.add(NODES)
        source.persist()
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(NODES[:1])
        store.load(tmp_path / "source")
    with EmbeddedVectorStore(tmp_path / "s") as store:
        assert store.count() == len(NODES)


@pytest.mark.slow
def test_a_deletion_that_the_engine_refuses_is_not_made_in_a_draft(tmp_path: Path) -> None:
    def refused(_: object) -> None:
        raise Exception("refused")  # noqa: TRY002 - as the engine does

    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(NODES)
        directory = store._directory
        with directory.drafting:
            draft = directory.start_draft(min_free=0)
            assert draft is not None
            everything = UpdateOperation.delete_points_by_filter(Filter())
            with pytest.raises(StoreUnavailableError, match="refused"):
                directory.change(refused, size_bytes=1, deletion=everything)
            directory.finish_draft(draft, EdgeShard.load(str(draft.folder)))
        assert directory.is_made_of(draft)
        assert store.count() == 2


@pytest.mark.slow
@pytest.mark.parametrize("indexed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_removed_nodes_do_not_count_for_keywords_in_a_reopened_or_copied_store(
    tmp_path: Path, indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llama_retrieval_ext.stores.embedded.index.FULL_SCAN_KB", 1)
    query = VectorStoreQuery(query_str="leave", mode=VectorStoreQueryMode.SPARSE)
    texts = ["other", "leave", "leave"] * 100
    nodes = [
        TextNode(id_=f"n{number}", text=text, embedding=[1.0, number])
        for number, text in enumerate(texts)
    ]
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(nodes)
        assert not indexed or store.build_index()
        store.delete_nodes([f"n{number}" for number in range(1, 300, 3)])
        expected = store.query(query).similarities
        shutil.copytree(tmp_path / "s", tmp_path / "copied")
    with EmbeddedVectorStore(":memory:") as store:
        store.load(tmp_path / "copied")
        assert store.query(query).similarities == pytest.approx(expected)
    for name in ("copied", "s"):
        with EmbeddedVectorStore(tmp_path / name) as store:
            assert store.query(query).similarities == pytest.approx(expected)


def test_a_crash_before_the_first_manifest_leaves_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "store.json.new").write_text("{")
    with EmbeddedVectorStore(tmp_path) as store:
        assert store.count() == 0


AS_NOBODY = "os.setuid(65534) if os.getuid() == 0 else None\n"


@pytest.mark.slow
@pytest.mark.parametrize("what", ["existing", "new"])
def test_a_read_only_directory_is_refused_and_nothing_is_lost(tmp_path: Path, what: str) -> None:
    path = tmp_path / "s"
    with EmbeddedVectorStore(path) as store:
        store.add(NODES)
    for folder in (*tmp_path.parents, tmp_path):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    path.chmod(0o555)
    target = path if what == "existing" else path / "new"
    done = elsewhere(AS_NOBODY + "EmbeddedVectorStore(sys.argv[1])", target)
    path.chmod(0o755)
    assert "StoreUnavailableError" in done.stderr
    assert "cannot be written to (Permission denied)" in done.stderr
    with EmbeddedVectorStore(path) as store:
        assert store.count() == 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_store_is_refused_in_a_forked_child_and_works_in_the_parent() -> None:
    done = elsewhere(
        """
        from llama_index.core.schema import TextNode
        store = EmbeddedVectorStore(":memory:")
        store.add([TextNode(embedding=[1.0])])
        child = os.fork()
        if not child:
            try:
                store.count()
            except Exception as error:
                print(type(error).__name__, "forked" in str(error), flush=True)
            store.close()
            os._exit(0)
        os.waitpid(child, 0)
        print(store.count(), store._directory.path.is_dir())
        """
    )
    assert done.stdout == "StoreUnavailableError True\n1 True\n", done.stderr
