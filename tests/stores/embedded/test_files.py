"""Files of a store directory: their copy, the manifest, and the errors of the engine."""

import errno
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llama_retrieval_ext.errors import (
    StoreClosedError,
    StoreError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.embedded.files import (
    FreezingLock,
    bytes_on_disk,
    copy_folder,
    translate_error,
)
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.cases import cases

_MB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="other systems fill the holes of a copy")
def test_a_copied_folder_has_the_same_bytes_and_keeps_its_holes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, places in {"ends": (0, 7), "middle": (3,), "hole": (), "tail": (7,)}.items():
        with (source / name).open("wb") as file:
            for place in places:
                file.seek(place * _MB)
                file.write(f"{name} {place}".encode())
            file.truncate(8 * _MB)
    (source / "empty").touch()

    copy_folder(source, tmp_path / "copy")

    for each in source.iterdir():
        assert (tmp_path / "copy" / each.name).read_bytes() == each.read_bytes()
    assert bytes_on_disk(source) < _MB
    assert bytes_on_disk(tmp_path / "copy") < _MB


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such lock")
def test_a_lock_that_the_system_refuses_stays_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    lock = FreezingLock(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("fcntl.flock", refuse)
        with pytest.raises(OSError, match="no locks available"), lock:
            pass
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lock._lock.acquire, timeout=1).result()
    lock.release()


def test_a_store_of_another_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    EmbeddedVectorStore(tmp_path / "s").close()
    manifest = tmp_path / "s" / "store.json"
    other = json.dumps({**json.loads(manifest.read_text()), "format": 7})
    manifest.write_text(other)
    with pytest.raises(StoreFormatError, match="has format 7, this release reads 4"):
        EmbeddedVectorStore(tmp_path / "s")
    assert manifest.read_text() == other


@pytest.mark.parametrize("content", ["", "[]", '{"format": 4, "tokenizer": {}}'])
def test_a_broken_manifest_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    EmbeddedVectorStore(tmp_path / "s").close()
    manifest = tmp_path / "s" / "store.json"
    manifest.write_text(content)
    with pytest.raises(StoreFormatError, match=r"store\.json cannot be read"):
        EmbeddedVectorStore(tmp_path / "s")
    assert manifest.read_text() == content


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    for path in (file, file / "below"):
        with pytest.raises(StoreUnavailableError, match="not a directory"):
            EmbeddedVectorStore(path)


@cases(
    ("message", "kind", "says"),
    [
        ("failed to open WAL: Kind(WouldBlock)", StoreUnavailableError, "another process has"),
        ("Shard is not initialized", StoreClosedError, "was closed"),
        ("No space left on device (os error 28)", StoreUnavailableError, "no room is left"),
        ("something else", StoreUnavailableError, "the engine failed in dir: something else"),
    ],
)
def test_an_engine_error_becomes_ours(message: str, kind: type[StoreError], says: str) -> None:
    error = translate_error(Exception(message), Path("dir"))
    assert type(error) is kind
    assert says in str(error)


def test_files_that_vanish_while_they_are_counted_count_as_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stays").write_bytes(b"x" * 10_000)
    size = bytes_on_disk(tmp_path)
    monkeypatch.setattr("os.walk", lambda path: [(str(path), ["gone"], ["stays", "gone"])])
    assert bytes_on_disk(tmp_path) == size >= 10_000
