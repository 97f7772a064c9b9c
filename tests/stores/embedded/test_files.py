import shutil
import sys
import threading
from pathlib import Path

import pytest

from llama_retrieval_ext.stores.embedded.files import bytes_on_disk, copy_folder

_MB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="other systems fill the holes of a copy")
def test_a_copied_folder_has_the_same_bytes_and_keeps_its_holes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, places in {"ends": (0, 31), "middle": (7,), "hole": (), "tail": (31,)}.items():
        with (source / name).open("wb") as file:
            for place in places:
                file.seek(place * _MB)
                file.write(f"{name} {place}".encode())
            file.truncate(32 * _MB)
    (source / "empty").touch()

    copy_folder(source, tmp_path / "copy")

    for each in source.iterdir():
        assert (tmp_path / "copy" / each.name).read_bytes() == each.read_bytes()
    assert bytes_on_disk(source) < _MB
    assert bytes_on_disk(tmp_path / "copy") < _MB


def test_files_that_vanish_while_they_are_counted_count_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "stays").write_bytes(b"x" * 10_000)
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            for number in range(20):
                folder = tmp_path / f"segment-{number}"
                folder.mkdir()
                (folder / "data").touch()
            for number in range(20):
                shutil.rmtree(tmp_path / f"segment-{number}")

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        sizes = {bytes_on_disk(tmp_path) for _ in range(200)}
    finally:
        done.set()
        churning.join()
    assert min(sizes) >= 10_000
    assert bytes_on_disk(tmp_path / "stays") >= 10_000
