"""What was acknowledged is there, whatever happens to the process or the disk."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from llama_index.core.schema import Document, TextNode

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.programs import Program

pytestmark = pytest.mark.slow

ADDING = """
import sys
from llama_index.core.schema import TextNode
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
store = EmbeddedVectorStore(sys.argv[1])
for call in range(10**6):
    nodes = [
        TextNode(id_=f"{call}-{n}", text="words " * 50, embedding=[1.0, call], metadata={"c": call})
        for n in range(3)
    ]
    print(*store.add(nodes), flush=True)
"""


def node(number: int, *, words: int = 2) -> TextNode:
    return TextNode(id_=f"n{number:06}", text="word " * words, embedding=[1.0, float(number)])


@pytest.mark.parametrize("calls", [1, 300])
def test_kill_in_the_middle_of_adding_loses_nothing_acknowledged(
    tmp_path: Path, calls: int
) -> None:
    with Program(ADDING, tmp_path / "s") as child:
        acknowledged = [child.stdout.readline() for _ in range(calls)]
        child.kill()
        acknowledged += child.stdout.readlines()
    ids = {name for line in acknowledged if line.endswith("\n") for name in line.split()}
    with EmbeddedVectorStore(tmp_path / "s") as store:
        assert len(ids) >= 3 * calls
        assert ids <= {each.node_id for each in store.get_nodes()}
        store.add([TextNode(id_="more", embedding=[1.0, 0.0])])
        assert store.get_nodes(["more"])


def test_without_room_nothing_is_written_and_nothing_is_lost(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "s", min_free_bytes=2**60) as store:
        with pytest.raises(StoreUnavailableError):
            store.add([node(0)])
        assert (store.count(), store.dimension) == (0, None)
        store.min_free_bytes = 0
        store.add([node(0)])
        store.min_free_bytes = 2**60
        with pytest.raises(StoreUnavailableError, match=r"MB are free .* MB are needed"):
            store.add([node(1)])
        assert [each.node_id for each in store.get_nodes()] == ["n000000"]


def mounted(place: Path, *options: str) -> Iterator[Path]:
    """Mount a small disk for a test."""
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.name != "posix" or os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    done = subprocess.run(
        [mount, *options, str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot mount a small disk here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=128m", "tmpfs")


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Path]:
    """A small disk in a file; unlike one in memory, its files may have holes that are read."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(160 * 2**20)
    mkfs = shutil.which("mkfs.ext4")
    if mkfs is None:
        pytest.skip("needs mkfs.ext4")
    subprocess.run([mkfs, "-q", "-m", "0", str(image)], check=True)
    yield from mounted(tmp_path / "ext4", "-o", "loop", str(image))


def test_a_full_disk_is_one_clear_error_and_loses_nothing(small_disk: Path) -> None:
    added = 0

    def fill(store: EmbeddedVectorStore) -> None:
        nonlocal added
        while True:
            store.add([node(added + n, words=3000) for n in range(200)])
            added += 200

    with EmbeddedVectorStore(small_disk / "s") as store:
        with pytest.raises(StoreUnavailableError, match="make room"):
            fill(store)
        before = store.count()
        assert before >= added >= 200
    with EmbeddedVectorStore(small_disk / "s") as store:
        ids = {each.node_id for each in store.get_nodes()}
        assert {f"n{number:06}" for number in range(added)} <= ids
        assert len(ids) == before
        store.clear()
        store.add([node(0)])
        assert store.count() == 1


def fill_but(place: Path, n_bytes: int) -> Path:
    """Write a file that leaves about so many bytes on the disk."""
    filler = place / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while (left := shutil.disk_usage(place).free - n_bytes) > 0:
            file.write(bytes(min(left, 2**20)))
    return filler


def test_opening_searching_and_deleting_need_no_room_on_a_full_disk(ext4: Path) -> None:
    with EmbeddedVectorStore(ext4 / "s") as store:
        store.add([node(n) for n in range(20)])
    filler = fill_but(ext4, 0)
    with EmbeddedVectorStore(ext4 / "s") as store:
        assert len(store.get_nodes()) == 20
        for number in range(10):
            store.delete_nodes([f"n{number:06}"])
        with pytest.raises(StoreUnavailableError, match="make room, or open it with store_params"):
            store.add([node(0)])
    with EmbeddedVectorStore(ext4 / "s") as store:
        assert store.count() == 10
        filler.unlink()
        for number in range(2):
            store.add([node(number)])
            (ext4 / "s" / "reserve").unlink()  # it is there again, for the next time


def test_without_a_reserve_opening_and_deleting_on_a_full_disk_are_refused(
    small_disk: Path,
) -> None:
    with EmbeddedVectorStore(small_disk / "s") as store:
        store.add([node(0)])
        assert not (small_disk / "s" / "reserve").exists()  # none in memory
        filler = fill_but(small_disk, 2**20)
        with pytest.raises(StoreUnavailableError, match=r"1 MB are free .* read_only=True"):
            store.delete_nodes(["n000000"])
    with pytest.raises(StoreUnavailableError, match="are free"):
        EmbeddedVectorStore(small_disk / "s")
    filler.unlink()
    with EmbeddedVectorStore(small_disk / "s") as store:
        assert store.count() == 1


def test_a_knowledge_base_on_a_full_disk_is_searched_changed_and_copied(ext4: Path) -> None:
    url, model = f"embedded:{ext4 / 'kb'}", FakeEmbedding(dim=8)
    with KnowledgeBase.open(url, embed_model=model) as kb:
        kb.add([Document(id_=f"d{n}", text=f"annual leave {n}") for n in range(5)])
    (ext4 / "kb" / "reserve").rename(ext4 / "reserve")
    fill_but(ext4, 0)
    with KnowledgeBase.open(url, embed_model=model, read_only=True) as copy:  # elsewhere
        assert len(copy.search("leave", "keyword").hits) == 5
    (ext4 / "reserve").rename(ext4 / "kb" / "reserve")
    with KnowledgeBase.open(url, embed_model=model) as kb:
        assert kb.delete("d0") == 1
        assert len(kb.search("leave", "keyword").hits) == 4
        with pytest.raises(StoreUnavailableError, match="min_free_bytes"):
            kb.add([Document(text="parental leave")])
        assert kb.delete("d1") == 1
    with KnowledgeBase.open(url, embed_model=model) as kb:
        assert len(kb.documents()) == 3


def test_creating_a_store_on_a_full_disk_is_refused(small_disk: Path) -> None:
    (small_disk / "s").mkdir()
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * shutil.disk_usage(small_disk).free)
    with pytest.raises(StoreUnavailableError, match="no room is left"):
        EmbeddedVectorStore(small_disk / "s")
